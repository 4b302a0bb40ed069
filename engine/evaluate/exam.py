"""sitting: problems of the corpus decoded and marked, one by one or in batches."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from engine.config.spec import RunSpec
from engine.generate.end_of_text import text_length
from engine.generate.job import split
from engine.generate.loop import Denoiser, denoise
from engine.serve.lane import LoadedModel, make_job
from engine.tiny import corpus
from engine.trace.metrics import Tally


@dataclasses.dataclass(frozen=True)
class Sitting:
    """One problem sat: its answer, whether it is right, and what it took.

    `ids` are the tokens before the first end of text, `nfe` steps, `positions` all that were
    decoded, `ms` engine time, `recomputed` a share, `cache_bytes` what the cache held.
    """

    text: str
    right: bool
    nfe: int
    ids: tuple[int, ...]
    positions: int
    ms: float
    gflops: float
    recomputed: float
    cache_bytes: int

    @property
    def tokens(self) -> int:
        """Tokens before the first end of text."""
        return len(self.ids)


def sit(
    model: LoadedModel,
    spec: RunSpec,
    questions: list[tuple[corpus.Problem, str]],
    batch: int = 1,
) -> Iterator[Sitting]:
    """Decode every problem; a batch shares its forwards, so its cost is split evenly over it."""
    for start in range(0, len(questions), batch):
        group = questions[start : start + batch]
        asked = [dataclasses.replace(spec, prompt=prompt) for _, prompt in group]
        prompts = [model.tokenizer.encode_spec(one) for one in asked]
        jobs = split(make_job(model, spec, prompts, asked=asked))
        for job in jobs:
            state, tally = Denoiser(job), Tally(job.canvas.shape[1])
            for event in denoise(state):
                tally.add(event)
            problems = group if len(jobs) == 1 else [group[job.first_sequence]]
            yield from _mark(model, state, tally, [problem for problem, _ in problems])


def _mark(
    model: LoadedModel, state: Denoiser, tally: Tally, problems: list[corpus.Problem]
) -> Iterator[Sitting]:
    size = len(problems)
    kept = state.cached_bytes()
    for row, problem in enumerate(problems):
        answer = state.ids[row, state.run.prompt_length :]
        ids = answer[: text_length(answer, state.run.info.stop_ids)].tolist()
        text = model.tokenizer.decode(ids)
        yield Sitting(
            text=text,
            right=corpus.correct(text, problem),
            nfe=tally.steps,
            ids=tuple(ids),
            positions=len(answer),
            ms=tally.total_ms / size,
            gflops=float(tally.flops.sum()) / 1e9 / size,
            recomputed=tally.recomputed / tally.steps,
            cache_bytes=kept // size,
        )


def summarise(spec: RunSpec, sittings: Sequence[Sitting]) -> dict[str, Any]:
    """One row of the table: accuracy with its binomial standard error, means and rates."""
    n = len(sittings)
    right = sum(one.right for one in sittings)
    seconds = sum(one.ms for one in sittings) / 1e3
    tokens = sum(one.tokens for one in sittings)
    gflops = sum(one.gflops for one in sittings)
    accuracy = right / n
    return {
        "accuracy": accuracy,
        "standard_error": math.sqrt(accuracy * (1 - accuracy) / n),
        "correct": right,
        "problems": n,
        "nfe": float(np.mean([one.nfe for one in sittings])),
        "tokens_per_forward": tokens / sum(o.nfe for o in sittings),
        "tokens_per_s": tokens / seconds,
        "positions_per_s": sum(one.positions for one in sittings) / seconds,
        "ms_per_problem": 1e3 * seconds / n,
        "gflops_per_token": gflops / max(tokens, 1),
        "gflops_per_position": gflops / sum(one.positions for one in sittings),
        "recomputed": float(np.mean([one.recomputed for one in sittings])),
        "cache_bytes": max(one.cache_bytes for one in sittings),
        "spec": spec.to_dict(),
    }
