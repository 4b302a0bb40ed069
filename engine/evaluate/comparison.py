"""Compare many settings on the same problems, each with the first one, and time them in turn."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from itertools import starmap
from math import lcm
from multiprocessing import get_context
from statistics import median
from typing import Any

import torch

from engine.batch.settings import NamedSpec
from engine.batch.statistics import agreement, discordant, mcnemar
from engine.bench.trial import run_once
from engine.config.answers import fitting_length
from engine.config.spec import RunSpec
from engine.core.events import RunFinished
from engine.core.tables import markdown_table, marked, mean_agreement, percent, percentage
from engine.evaluate.exam import ExamResult, Questions, evaluate, resized, summarise
from engine.evaluate.kept_accuracy import ANSWERS
from engine.guider.model import Guider
from engine.serve.lane import make_lane
from engine.serve.loaded_model import LoadedModel
from engine.tiny.corpus import families

# Of the prompts that are timed: tokens of an answer, of which the text of a word problem has about
# 50, and worked examples, which make a prompt about 512 tokens long.
TIMED_LENGTH, TIMED_SHOTS = 96, 5
Load = Callable[[RunSpec], LoadedModel | Guider]
Exam = Callable[[LoadedModel | Guider, RunSpec, Questions, int, bool], list[ExamResult]]
SPEED_HEAD = (
    "forwards", "to text end", "GFLOPs a position", "recomputed", "cache", "ms a step", "a step",
    "a run", "its text", "tokens/s",
)  # fmt: skip


def compare(
    load: Load,
    specs: Sequence[NamedSpec],
    questions: Questions,
    batch: int,
    workers: int,
    fit: bool = True,
    exam: Exam = evaluate,
) -> Iterator[dict[str, Any]]:
    """Evaluate every spec on all questions; yields a row a spec, paired with the first by problem.

    `workers` processes share the specs, each with models of its own, or this process alone if it
    is 1: `load` returns the model of a spec in its number format. `fit` as in `exam.evaluate`.
    Each process has as many torch threads as this one. `exam` decodes the problems of a spec.
    """
    work = [(load, one.spec, questions, batch, fit, exam) for one in specs]
    if workers == 1:
        yield from _rows(specs, starmap(_evaluate_one, work))
        return
    threads = (torch.get_num_threads(),)
    spawn = get_context("spawn")
    with ProcessPoolExecutor(workers, spawn, prepare_worker, threads) as pool:
        yield from _rows(specs, pool.map(_evaluate_one, *zip(*work, strict=True)))


def prepare_worker(threads: int) -> None:
    """Set the torch threads of a process that evaluates; an interrupt ends it without a word."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    torch.set_num_threads(threads)


def _rows(
    specs: Sequence[NamedSpec], results: Iterable[list[ExamResult]]
) -> Iterator[dict[str, Any]]:
    baseline: list[ExamResult] = []
    for one, found in zip(specs, results, strict=True):
        baseline = baseline or found
        yield {"name": one.name} | summarise(one.spec, found) | _paired(baseline, found)


def _evaluate_one(
    load: Load, spec: RunSpec, questions: Questions, batch: int, fit: bool, exam: Exam = evaluate
) -> list[ExamResult]:
    return exam(load(spec), spec, questions, batch, fit)


def _paired(baseline: list[ExamResult], results: list[ExamResult]) -> dict[str, Any]:
    pairs = list(zip(baseline, results, strict=True))
    gained, lost = discordant((a.correct, b.correct) for a, b in pairs)
    same: float | None = None
    if all(a.vocabulary == b.vocabulary for a, b in pairs):
        same = sum(agreement(a.ids, b.ids) for a, b in pairs) / len(pairs)
    return {"gained": gained, "lost": lost, "p": mcnemar(gained, lost), "agreement": same}


def timed_length(specs: Sequence[NamedSpec], context: int | None = None) -> int:
    """Positions of each timed answer, the same for every row: whole blocks of all of them.

    Raises ValueError naming `block_length` or the flag if these are more than a model's `context`.
    """
    sizes = sorted({one.spec.block_length for one in specs})
    length = fitting_length(TIMED_LENGTH, lcm(*sizes))
    if context is not None and context < TIMED_LENGTH:
        raise ValueError(
            f"--timed: an answer to time has at least {TIMED_LENGTH} positions, but the context "
            f"has {context}; give --timed 0"
        )
    if context is not None and length > context:
        raise ValueError(
            f"block_length: the shortest answer to time in whole blocks of each size, "
            f"{' and '.join(map(str, sizes))}, has {length} positions, but the context has "
            f"{context}; choose smaller sizes, or such as divide each other, or give --timed 0"
        )
    return length


def time_prompts(
    load: Load, specs: Sequence[NamedSpec], questions: Questions
) -> dict[str, dict[str, Any]]:
    """Decode each long prompt with every spec in turn, unbatched; returns figures by name.

    Times are those of the engine's clock. Each ratio compares two runs of the same prompt and
    answer length, one right after the other. A few warm-up steps of every spec come first.
    """
    runs: dict[str, list[RunFinished]] = {one.name: [] for one in specs}
    models: dict[str, LoadedModel | Guider] = {}
    length = timed_length(specs)
    for index, (_, prompt) in enumerate(questions):
        for one in specs:
            spec = resized(one.spec, prompt, length)
            if index == 0:
                models[one.name] = load(spec)
                make_lane(models[one.name], spec).warm_up()
            runs[one.name].append(run_once(models[one.name], spec))
    baseline = [dict(event.metrics) for event in runs[specs[0].name]]
    return {
        name: _times([dict(event.metrics) for event in events], baseline)
        for name, events in runs.items()
        if events
    }


def _times(runs: list[dict[str, Any]], baseline: list[dict[str, Any]]) -> dict[str, Any]:
    pairs = list(zip(baseline, runs, strict=True))
    texts = [a["text_ms"] / b["text_ms"] for a, b in pairs if a["text_ms"] and b["text_ms"]]
    medians = (
        "nfe", "text_nfe", "ms_per_step", "tokens_per_s", "positions_per_s", "gflops_per_position",
        "recomputed",
    )  # fmt: skip
    return {
        "prompts": len(runs),
        "cache_bytes": max(one["cache_bytes"] for one in runs),
        "step_ratio": median(a["ms_per_step"] / b["ms_per_step"] for a, b in pairs),
        "speed_up": median(a["total_ms"] / b["total_ms"] for a, b in pairs),
        "text_speed_up": median(texts) if texts else None,
    } | {name: median(one[name] for one in runs) for name in medians}


def by_family(rows: Mapping[str, Sequence[Mapping[str, Any]]]) -> list[dict[str, Any]]:
    """Rows of `compare` on several families, given by family: one row a spec.

    Its `families` has, by family, its label and what the answers gave (kept_accuracy.ANSWERS).
    """
    return [
        {"name": together[0]["name"], "spec": together[0]["spec"]}
        | {
            "families": {
                family: {"label": families()[family].label}
                | {field: row[field] for field in ANSWERS}
                for family, row in zip(rows, together, strict=True)
            }
        }
        for together in zip(*rows.values(), strict=True)
    ]


def markdown(rows: Sequence[Mapping[str, Any]]) -> str:
    """Rows by family as a Markdown table; without the columns of speed if no row was timed.

    A dagger marks an accuracy that differs significantly from that of the first row.
    """
    timed = any(row["speed"] for row in rows)
    head = (
        "method", *(found["label"] for found in rows[0]["families"].values()), "same tokens",
        *SPEED_HEAD * timed,
    )  # fmt: skip
    return markdown_table(head, [_accuracy_cells(row) + _speed_cells(row) * timed for row in rows])


def _accuracy_cells(row: Mapping[str, Any]) -> list[str]:
    right = [marked(found, percent(found)) for found in row["families"].values()]
    return [row["name"], *right, mean_agreement(row)]


def _speed_cells(row: Mapping[str, Any]) -> list[str]:
    speed = row["speed"]
    if speed is None:
        return [""] * len(SPEED_HEAD)
    text = speed["text_speed_up"]
    return [
        f"{speed['nfe']:.0f}", f"{speed['text_nfe']:.0f}", f"{speed['gflops_per_position']:.2f}",
        percentage(speed["recomputed"], 0), f"{speed['cache_bytes'] / 1e6:.1f} MB",
        f"{speed['ms_per_step']:.1f}", f"{speed['step_ratio']:.2f}x", f"{speed['speed_up']:.2f}x",
        "" if text is None else f"{text:.2f}x", f"{speed['tokens_per_s']:.0f}",
    ]  # fmt: skip
