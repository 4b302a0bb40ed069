"""The exam: decode held-out problems of the corpus and check their final numbers."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator, Sequence
from itertools import groupby, islice
from typing import Any

import numpy as np

from engine.config.answers import fitting_length
from engine.config.spec import RunSpec
from engine.generate.autoregressive import AutoregressiveDecoder
from engine.generate.end_of_text import Answer
from engine.generate.job import Job, split
from engine.generate.loop import Denoiser, denoise
from engine.guider.model import Guider
from engine.models.tokenizer import Tokenizer
from engine.serve.loaded_model import LoadedModel, check_context, make_job, prompt_ids
from engine.tiny import corpus
from engine.tiny.family import Problem
from engine.trace.metrics import Tally

Questions = list[tuple[Problem, str]]


@dataclasses.dataclass(frozen=True)
class ExamResult:
    """A decoded problem, and its share of the costs of its batch.

    `ids` are the tokens before the first end of text, of a `vocabulary` (Tokenizer.vocabulary),
    `nfe` counts steps, `text_nfe` those until the last of `ids` was committed, `forwards` those of
    both branches of classifier-free guidance, `positions` all that were decoded, `ms` is engine
    time, `recomputed` the mean share of rows computed in a step.
    """

    text: str
    correct: bool
    nfe: int
    text_nfe: int
    forwards: int
    ids: tuple[int, ...]
    vocabulary: str
    positions: int
    ms: float
    gflops: float
    recomputed: float
    cache_bytes: int


def resized(spec: RunSpec, prompt: str, length: int) -> RunSpec:
    """The spec for another prompt and answer length, with as many tokens a step."""
    steps = max(1, spec.steps * length // spec.gen_length)
    return dataclasses.replace(spec, prompt=prompt, gen_length=length, steps=steps)


def fitted(spec: RunSpec, one: Problem, prompt: str, tokenizer: Tokenizer) -> RunSpec:
    """The spec for a problem: the answer length is that of its own text, rounded up to a block.

    The text's length is counted in the tokens of the model that answers, with its end of text.
    """
    length = fitting_length(len(tokenizer.encode(one.solution)) + 1, spec.block_length)
    return resized(spec, prompt, length)


def evaluate(
    model: LoadedModel | Guider,
    spec: RunSpec,
    questions: Questions,
    batch: int = 1,
    fit: bool = True,
) -> list[ExamResult]:
    """Decode every problem, in answers of a fitting length (`fitted`) or of the spec's own.

    A batch has problems of one answer length, and its costs are divided evenly among them. Its
    sequences wait for each other at the end of a block, so `nfe`, `text_nfe` and the costs are
    those of a problem alone only if `batch` is 1. On a GPU the times include the capture of
    forwards. An autoregressive model decodes one at a time.
    """
    specs = [
        fitted(spec, one, prompt, model.tokenizer)
        if fit
        else dataclasses.replace(spec, prompt=prompt)
        for one, prompt in questions
    ]
    order = sorted(range(len(specs)), key=lambda index: specs[index].gen_length)
    found: dict[int, ExamResult] = {}
    for _, alike in groupby(order, key=lambda index: specs[index].gen_length):
        waiting = iter(alike)
        while group := list(islice(waiting, batch)):
            own = [questions[index][0] for index in group]
            found |= dict(zip(group, _decode(model, [specs[i] for i in group], own), strict=True))
    return [found[index] for index in range(len(specs))]


def _decode(
    model: LoadedModel | Guider, specs: Sequence[RunSpec], problems: Sequence[Problem]
) -> Iterator[ExamResult]:
    """Decode one batch."""
    if isinstance(model, Guider):
        for spec, problem in zip(specs, problems, strict=True):
            yield _decode_causally(model, spec, problem)
        return
    prompts = [prompt_ids(one, model.tokenizer) for one in specs]
    for state, tally in decoded(make_job(model, specs[0], prompts, sequence_specs=specs)):
        marker = _Marker(model.tokenizer, state.run.prompt_length, tally)
        own = problems[state.job.first_sequence :][: tally.batch]
        for row, problem in enumerate(own):
            yield marker.result(state.answer(row), row, problem, state.cached_bytes())


def decoded(job: Job) -> Iterator[tuple[Denoiser, Tally]]:
    """Decode a batch, in the parts of `split`; the final state of each part and its sums.

    Raises ValueError naming `fixed` if nothing of the answers is left to decode.
    """
    for part in split(job):
        state, tally = Denoiser(part), Tally(part.canvas.shape[1], len(part.canvas))
        for event in denoise(state):
            tally.add(event)
        if not tally.steps:
            raise ValueError("fixed: no position of an answer is left to decode; fix fewer")
        yield state, tally


def _decode_causally(model: Guider, spec: RunSpec, problem: Problem) -> ExamResult:
    prompt = prompt_ids(spec, model.tokenizer)
    decoder = AutoregressiveDecoder(model, spec, prompt)
    check_context(len(prompt), spec, decoder.info)
    tally = Tally(decoder.ids.shape[1])
    for event in decoder.steps():
        tally.add(event)
    marker = _Marker(model.tokenizer, decoder.prompt_length, tally)
    return marker.result(decoder.answer(), 0, problem, decoder.cached_bytes())


@dataclasses.dataclass(frozen=True)
class _Marker:
    """Marks the answers of a decoded batch, whose costs are those of `tally`."""

    tokenizer: Tokenizer
    prompt_length: int
    tally: Tally

    def result(self, answer: Answer, row: int, problem: Problem, cache_bytes: int) -> ExamResult:
        """The result of a sequence, number `row` of the batch."""
        tally, size = self.tally, self.tally.batch
        text = self.tokenizer.decode(list(answer.ids))
        return ExamResult(
            text=text,
            correct=corpus.correct(text, problem),
            nfe=tally.steps,
            text_nfe=tally.text_steps(self.prompt_length, answer.positions, row),
            forwards=tally.forwards,
            ids=answer.ids,
            vocabulary=self.tokenizer.vocabulary,
            positions=int((tally.revealed[row] >= 0).sum()),
            ms=tally.total_ms / size,
            gflops=float(tally.flops.sum()) / 1e9 / size,
            recomputed=tally.recomputed_share,
            cache_bytes=cache_bytes // size,
        )


def accuracy_row(correct: int, problems: int) -> dict[str, Any]:
    """Accuracy and its binomial standard error, as the start of a table row."""
    accuracy = correct / problems
    return {
        "accuracy": accuracy,
        "standard_error": math.sqrt(accuracy * (1 - accuracy) / problems),
        "correct": correct,
        "problems": problems,
    }


def summarise(spec: RunSpec, results: Sequence[ExamResult]) -> dict[str, Any]:
    """One row of the table: accuracy, means and rates over all problems."""
    seconds = sum(one.ms for one in results) / 1e3
    tokens = sum(len(one.ids) for one in results)
    positions = sum(one.positions for one in results)
    gflops = sum(one.gflops for one in results)
    return accuracy_row(sum(one.correct for one in results), len(results)) | {
        "nfe": float(np.mean([one.nfe for one in results])),
        "text_nfe": float(np.mean([one.text_nfe for one in results])),
        "tokens": tokens / len(results),
        "positions": positions / len(results),
        "tokens_per_forward": tokens / sum(one.forwards for one in results),
        "tokens_per_s": tokens / seconds,
        "positions_per_s": positions / seconds,
        "ms_per_problem": 1e3 * seconds / len(results),
        "gflops_per_token": gflops / max(tokens, 1),
        "gflops_per_position": gflops / positions,
        "recomputed": float(np.mean([one.recomputed for one in results])),
        "cache_bytes": max(one.cache_bytes for one in results),
        "spec": spec.to_dict(),
    }
