"""An endless stream of training batches, drawn from the corpus."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace

import torch
from tokenizers import Tokenizer

from engine.tiny import corpus
from engine.tiny.scenes import SMALL, WIDE
from engine.tiny.states import Batch, Recipe, Sample, canvas, causal, copies
from engine.tiny.tokenizer import BOS, EOS, EOT, HEAD, HEAD_END, digit_ids


class BatchStream:
    """Draws problems, encodes them and groups them by length; a seed reproduces its batches."""

    def __init__(self, tokenizer: Tokenizer, recipe: Recipe, family: str, seed: int) -> None:
        self.tokenizer, self.recipe, self.family, self.seed = tokenizer, recipe, family, seed
        self.words = {w: tokenizer.encode(w).ids for w in ("user", "assistant", "\n", "\n\n")}
        self.equals = tokenizer.encode(" =").ids[0]
        self.ranges = WIDE if recipe.wide else SMALL
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

    def _groups(self, rng: random.Random) -> list[tuple[str, list[Sample]]]:
        groups: list[tuple[str, list[Sample]]] = []
        share = self.recipe.few_shot
        for long, count in ((False, 1600), (True, 320)):
            samples = self._draw(rng, long, round(count * (share if long else 1 - share)))
            samples.sort(key=lambda s: (len(s.ids), rng.random()))
            kind, group, size = self._kind(rng, long), [], 0.0
            for sample in samples:
                group.append(sample)
                size += self._cost(kind, sample)
                if size >= self.recipe.tokens:
                    groups.append((kind, group))
                    kind, group, size = self._kind(rng, long), [], 0.0
        rng.shuffle(groups)
        return groups

    def _kind(self, rng: random.Random, long: bool) -> str:
        """Draw the kind of the next batch; long prompts give only canvas states."""
        if self.recipe.kind == "causal":
            return "causal"
        return "copies" if not long and rng.random() < self.recipe.copies else "canvas"

    def _cost(self, kind: str, sample: Sample) -> float:
        """About how many canvas tokens a sample needs."""
        start, end = sample.spans[-1]
        if kind == "causal":
            return len(sample.ids)
        return end + 2 * (end - start + 5) if kind == "copies" else start + 64

    def _problem(self, rng: random.Random) -> corpus.Problem:
        while True:
            one = corpus.problem(rng, self.recipe.operations, self.recipe.wordings, self.ranges)
            if not corpus.held_out(one.question):
                return one

    def _draw(self, rng: random.Random, long: bool, count: int) -> list[Sample]:
        """Draw problems and encode them; `long` ones follow worked examples."""
        recipe, chats = self.recipe, []
        for _ in range(count):
            one = self._problem(rng)
            messages = corpus.chat(one)
            if long:
                messages = corpus.few_shot(
                    rng, one, _length, rng.choice(recipe.shots), rng.choice(corpus.FORMS),
                    recipe.operations, recipe.wordings, self.ranges,
                )  # fmt: skip
            chats.append([*messages, {"role": "assistant", "content": one.solution}])
        return self._encode(chats)

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
        batch = replace(batch, rows=batch.rows - (self.recipe.shift if kind == "canvas" else 0))
        return replace(batch, weights=batch.weights * self.weights[batch.targets])


def _length(messages: list[corpus.Message]) -> int:
    texts = [message["content"] for message in messages]
    return sum(corpus.count_pieces(text) + text.count("\n") + 5 for text in texts) + 6
