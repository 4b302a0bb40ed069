"""Compare many settings on the same problems, each with the first one, and time them in turn."""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from statistics import median
from typing import Any

import torch

from engine.bench.suite import NamedSpec
from engine.bench.trial import run_once
from engine.config.spec import RunSpec
from engine.core.events import RunFinished
from engine.core.tables import markdown_table
from engine.evaluate.exam import ExamResult, Questions, evaluate, summarise
from engine.serve.lane import Lane, LoadedModel

TIMED_LENGTH = 128
REDO = "make the table again without --add"
Load = Callable[[RunSpec], LoadedModel]
HEAD = (
    "method", "right", "p", "forwards", "GFLOPs a token", "recomputed", "tokens as plain",
    "cache", "forwards", "ms a step", "a step", "a run", "tokens/s",
)  # fmt: skip


def compare(
    load: Load,
    specs: Sequence[NamedSpec],
    questions: Questions,
    batch: int,
    workers: int,
) -> list[dict[str, Any]]:
    """Evaluate every spec on all questions; each row is paired with the first, by problem.

    `workers` processes share the specs, each with models of its own: `load` returns the model of
    a spec in its number format.
    """
    work = [(load, one.spec, questions, batch) for one in specs]
    with ProcessPoolExecutor(workers, get_context("spawn")) as pool:
        results = list(pool.map(_evaluate_one, *zip(*work, strict=True)))
    return [
        {"name": one.name} | summarise(one.spec, found) | _paired(results[0], found)
        for one, found in zip(specs, results, strict=True)
    ]


def _evaluate_one(load: Load, spec: RunSpec, questions: Questions, batch: int) -> list[ExamResult]:
    torch.set_num_threads(1)
    return list(evaluate(load(spec), spec, questions, batch))


def _paired(baseline: list[ExamResult], results: list[ExamResult]) -> dict[str, Any]:
    pairs = list(zip(baseline, results, strict=True))
    gained = sum(b.correct and not a.correct for a, b in pairs)
    lost = sum(a.correct and not b.correct for a, b in pairs)
    agreement = sum(_agreement(a.ids, b.ids) for a, b in pairs) / len(pairs)
    return {"gained": gained, "lost": lost, "p": mcnemar(gained, lost), "agreement": agreement}


def _agreement(a: tuple[int, ...], b: tuple[int, ...]) -> float:
    """Share of positions of the longer answer that hold the same token in both."""
    longest = max(len(a), len(b))
    return sum(x == y for x, y in zip(a, b, strict=False)) / longest if longest else 1.0


def mcnemar(gained: int, lost: int) -> float:
    """Two-sided p-value of the exact McNemar test for `gained` and `lost` discordant pairs."""
    n = gained + lost
    tail = sum(math.comb(n, k) for k in range(min(gained, lost) + 1)) / 2**n
    return min(1.0, 2 * tail)


def time_prompts(
    load: Load, specs: Sequence[NamedSpec], questions: Questions
) -> dict[str, dict[str, Any]]:
    """Decode each long prompt with every spec in turn, unbatched; returns figures by name.

    Times are those of the engine's clock. Each ratio compares two runs of the same prompt, one
    right after the other. A few warm-up steps of every spec come first.
    """
    runs: dict[str, list[RunFinished]] = {one.name: [] for one in specs}
    models: dict[str, LoadedModel] = {}
    for index, (_, prompt) in enumerate(questions):
        for one in specs:
            spec = _lengthened(one.spec, prompt)
            if index == 0:
                models[one.name] = load(spec)
                Lane(models[one.name], spec).warm_up()
            runs[one.name].append(run_once(models[one.name], spec))
    baseline = [dict(event.metrics) for event in runs[specs[0].name]]
    return {
        name: _times([dict(event.metrics) for event in events], baseline)
        for name, events in runs.items()
        if events
    }


def _lengthened(spec: RunSpec, prompt: str) -> RunSpec:
    """The spec for another prompt and TIMED_LENGTH tokens, with as many tokens per step."""
    steps = max(1, spec.steps * TIMED_LENGTH // spec.gen_length)
    return dataclasses.replace(spec, prompt=prompt, gen_length=TIMED_LENGTH, steps=steps)


def _times(runs: list[dict[str, Any]], baseline: list[dict[str, Any]]) -> dict[str, Any]:
    pairs = list(zip(baseline, runs, strict=True))
    medians = (
        "nfe", "ms_per_step", "tokens_per_s", "positions_per_s", "gflops_per_position",
        "recomputed",
    )  # fmt: skip
    return {
        "prompts": len(runs),
        "cache_bytes": max(one["cache_bytes"] for one in runs),
        "step_ratio": median(a["ms_per_step"] / b["ms_per_step"] for a, b in pairs),
        "speed_up": median(a["total_ms"] / b["total_ms"] for a, b in pairs),
    } | {name: median(one[name] for one in runs) for name in medians}


def read_table(folder: Path) -> dict[str, Any]:
    """The table.json of a folder; ValueError if it is missing or not a comparison."""
    try:
        table = json.loads((folder / "table.json").read_text("utf-8"))
        complete = (
            isinstance(table["command"], str)
            and isinstance(table["environment"]["checkpoint"], str)
            and {"correct", "problems", "nfe", "spec"} <= table["rows"][0].keys()
            and all(isinstance(row["name"], str) for row in table["rows"])
        )
    except (OSError, ValueError, LookupError, TypeError, AttributeError):
        complete = False
    if not complete:
        raise ValueError(f"add: --out must name a folder with a table.json; {REDO}")
    return dict(table)


def check_baseline(old: dict[str, Any], spec: RunSpec, checkpoint: str) -> None:
    """Raise ValueError if the first row of a table has another spec or checkpoint."""
    if RunSpec.from_dict(old["rows"][0]["spec"]) != spec:
        raise ValueError(f"add: the first rows differ in their settings; {REDO}")
    if old["environment"]["checkpoint"] != checkpoint:
        raise ValueError(f"add: the table is of another checkpoint; {REDO}")


def merge_tables(old: dict[str, Any], new: dict[str, Any]) -> dict[str, Any]:
    """`old` with the rows of `new`, which replace rows of the same name.

    Raises ValueError if the first rows have different results, because the others are paired
    with them.
    """
    for key in ("correct", "problems", "nfe"):
        if old["rows"][0][key] != new["rows"][0][key]:
            raise ValueError(f"add: the first rows differ in {key}; {REDO}")
    added = {row["name"] for row in new["rows"][1:]}
    kept = [row for row in old["rows"] if row["name"] not in added]
    commands = dict.fromkeys([*old["command"].splitlines(), new["command"]])
    return old | {"rows": [*kept, *new["rows"][1:]], "command": "\n".join(commands)}


def markdown(document: dict[str, Any]) -> str:
    """The table with its conditions and the command that made it."""
    where, rows = document["environment"], document["rows"]
    prompts = rows[0]["speed"]["prompts"] if rows[0]["speed"] else 0
    notes = (
        f"{rows[0]['problems']} held-out problems, the same for every row; `p` is McNemar's exact "
        "test against the first row. From the second `forwards` on: another, longer task "
        f"({TIMED_LENGTH}-token answers after worked examples, {prompts} prompts, one at a "
        "time), ratios to the first row side by side. "
        f"{where['device_name']}, {where['threads']} thread, {where['dtype']}, torch "
        f"{where['torch']}, checkpoint `{where['checkpoint'][:12]}`."
    )
    commands = "\n\n".join(f"`{line}`" for line in document["command"].splitlines())
    return f"{markdown_table(HEAD, map(_cells, rows))}\n{notes}\n\n{commands}\n"


def _cells(row: dict[str, Any]) -> list[str]:
    speed = row["speed"]
    accuracy = f"{100 * row['accuracy']:.1f} ± {100 * row['standard_error']:.1f} %"
    cells = [
        row["name"], accuracy, f"{row['p']:.2g}", f"{row['nfe']:.1f}",
        f"{row['gflops_per_token']:.2f}", f"{row['recomputed']:.0%}", f"{row['agreement']:.1%}",
        f"{row['cache_bytes'] / 1e6:.1f} MB",
    ]  # fmt: skip
    if speed is None:
        return [*cells, "", "", "", "", ""]
    return [
        *cells, f"{speed['nfe']:.0f}", f"{speed['ms_per_step']:.1f}",
        f"{speed['step_ratio']:.2f}x", f"{speed['speed_up']:.2f}x", f"{speed['tokens_per_s']:.0f}",
    ]  # fmt: skip
