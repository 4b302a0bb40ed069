"""An endless stream of training batches, drawn from the problem families."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace

import torch
from tokenizers import Tokenizer
from torch.utils.data import DataLoader, IterableDataset

from engine.tiny import corpus
from engine.tiny.family import EXAM, TRAINING, Problem, count_pieces
from engine.tiny.tokenizer import BOS, EOS, EOT, HEAD, HEAD_END, digit_ids
from engine.tiny.training_inputs import Batch, Recipe, Sample, canvas, causal, copies

LONGEST = 930  # tokens of a sample; the answer region must fit into the context after it
CHUNK = 1200  # conversations
AHEAD = 16  # batches
# A family whose problems may have a text that the exam of another one holds out, and that one.
ALSO_HELD_OUT = {"word_problems": "short_problems"}


class BatchStream:
    """Draws problems of one part, `chunk` of them at a time, and groups them by length.

    A seed reproduces its batches.
    """

    def __init__(
        self,
        tokenizer: Tokenizer,
        recipe: Recipe,
        family: str,
        seed: int,
        part: str = TRAINING,
        chunk: int = CHUNK,
    ) -> None:
        self.tokenizer, self.recipe, self.family, self.seed = tokenizer, recipe, family, seed
        self.part, self.chunk, self.families = part, chunk, corpus.families()
        self.words = {w: tokenizer.encode(w).ids for w in ("user", "assistant", "\n", "\n\n")}
        self.equals = tokenizer.encode(" =").ids[0]
        self.weights = torch.ones(tokenizer.get_vocab_size() + 64)
        self.weights[digit_ids(tokenizer)] = recipe.number_weight
        self.weights[EOS] = 0.5

    def batches(self, start: int = 0) -> Iterator[Batch]:
        """Yield batches without end, from number `start` on."""
        number, chunk = 0, 0
        while True:
            groups = self._groups(random.Random(f"{self.seed}/{chunk}"))
            chunk += 1
            for kind, group in groups:
                if number >= start:
                    generator = torch.Generator().manual_seed(self.seed * 1_000_003 + number)
                    yield self._batch(kind, group, generator)
                number += 1

    def batches_ahead(self, start: int = 0) -> Iterator[Batch]:
        """The same batches, drawn by another process while earlier ones are used."""
        numbered = _Batches(self, start)
        return iter(DataLoader(numbered, batch_size=None, num_workers=1, prefetch_factor=AHEAD))

    def _groups(self, rng: random.Random) -> list[tuple[str, list[Sample]]]:
        """Samples of about the same length, those of a prompt with many answers apart.

        The longest ones are left over and come last, in smaller groups.
        """
        groups: list[tuple[str, list[Sample]]] = []
        smaller: list[tuple[str, list[Sample]]] = []
        drawn = [self._conversation(rng) for _ in range(self.chunk)]
        samples = self._encode([self._messages(rng, one) for one in drawn])
        for many in (False, True):
            own = [one for one in samples if (len(one.spans) > 1) == many]
            own.sort(key=lambda s: (len(s.ids), rng.random()))
            kind, group, size = self._kind(rng), [], 0.0
            for sample in own:
                group.append(sample)
                size += self._cost(kind, sample)
                if size >= self.recipe.tokens:
                    groups.append((kind, group))
                    kind, group, size = self._kind(rng), [], 0.0
            if group:
                smaller.append((kind, group))
        rng.shuffle(groups)
        return groups + smaller

    def _kind(self, rng: random.Random) -> str:
        """Draw the kind of the next batch."""
        if self.recipe.kind == "causal":
            return "causal"
        if self.recipe.block:
            return "copies"
        return "copies" if rng.random() < self.recipe.copies else "canvas"

    def _cost(self, kind: str, sample: Sample) -> float:
        """About how many canvas tokens a sample needs."""
        end = sample.spans[-1][1]
        if kind == "causal":
            return len(sample.ids)
        # Copies begin with any answer, on average in the middle of them.
        copied = end - (sample.spans[0][0] + sample.spans[-1][0]) / 2
        return end + 3 * (copied + 5 + self.recipe.block) if kind == "copies" else end + 24

    def _conversation(self, rng: random.Random) -> list[Problem]:
        """Problems of one family and of the stream's part that follow each other in a prompt."""
        recipe = self.recipe
        family = self.families[rng.choices(*zip(*recipe.families, strict=True))[0]]
        size = rng.uniform(*recipe.sizes)
        count = 1
        if family.shared_text or rng.random() < recipe.few_shot:
            count = rng.randint(2, recipe.turns)
        found: list[Problem] = []
        while not found:
            drawn = family.conversation(rng, count, size)
            if family.part(drawn[0]) == self.part:
                found = [one for one in drawn if self._is_own(one)]
        return found

    def _is_own(self, one: Problem) -> bool:
        """Whether a problem is of the stream's part, and its text in no other family's exam."""
        other = ALSO_HELD_OUT.get(one.family)
        examined = other is not None and self.families[other].part(one) == EXAM
        return self.families[one.family].part(one) == self.part and not examined

    def _messages(self, rng: random.Random, problems: list[Problem]) -> list[corpus.Message]:
        """The problems with their answers, the last ones left out if they are too long."""
        shared = self.families[problems[0].family].shared_text
        form = "turns" if shared else rng.choice(corpus.FORMS)
        while True:
            last = problems[-1]
            messages = corpus.arrange(problems[:-1], last, form)
            messages = [*messages, {"role": "assistant", "content": last.solution}]
            if len(problems) == 1 or _length(messages) <= LONGEST:
                return messages
            problems = problems[:-1]

    def _encode(self, chats: list[list[corpus.Message]]) -> list[Sample]:
        texts = [m["content"] for chat in chats for m in chat]
        encoded = iter(self.tokenizer.encode_batch(texts, add_special_tokens=False))
        samples = []
        for chat in chats:
            ids, spans = ([BOS] if self.family == "llada" else []), []
            for message in chat:
                ids += self.header(message["role"])
                start = len(ids)
                text = next(encoded)
                ids += [*text.ids, EOT]
                if message["role"] == "assistant":
                    spans.append((start, len(ids)))
                for first, last in corpus.worked_answers(message["content"]):
                    inside = [i for i, (_, b) in enumerate(text.offsets) if first < b <= last]
                    spans.append((start + inside[0], start + inside[-1] + 1))
                if self.family == "qwen2":
                    ids += self.words["\n"]
            sums = [i + 1 for a, b in spans for i in range(a, b) if ids[i] == self.equals]
            samples.append(Sample(ids, spans, sums))
        return samples

    def header(self, role: str) -> list[int]:
        """The ids that start a turn, as in the chat template."""
        if self.family == "llada":
            return [HEAD, *self.words[role], HEAD_END, *self.words["\n\n"]]
        return [HEAD, *self.words[role], *self.words["\n"]]

    def _batch(self, kind: str, group: list[Sample], generator: torch.Generator) -> Batch:
        make = {"causal": causal, "copies": copies, "canvas": canvas}[kind]
        batch = make(group, self.recipe, generator)
        return replace(batch, weights=batch.weights * self.weights[batch.targets])


class _Batches(IterableDataset[Batch]):
    """The batches of a stream from a number on."""

    def __init__(self, stream: BatchStream, start: int) -> None:
        self._stream, self._start = stream, start

    def __iter__(self) -> Iterator[Batch]:
        return self._stream.batches(self._start)


def _length(messages: list[corpus.Message]) -> int:
    texts = [message["content"] for message in messages]
    return sum(count_pieces(text) + text.count("\n") + 5 for text in texts) + 6
