"""comparison: many settings on the same problems, paired with the first, and timed in turn."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from statistics import median
from typing import Any

import torch

from engine.bench.suite import Entry
from engine.bench.trial import run_once
from engine.config.spec import RunSpec
from engine.core.events import RunFinished
from engine.evaluate.exam import Sitting, sit, summarise
from engine.serve.lane import Lane, LoadedModel
from engine.tiny import corpus

TIMED_LENGTH = 128
Load = Callable[[RunSpec], LoadedModel]
Questions = list[tuple[corpus.Problem, str]]


def compare(
    load: Load,
    entries: Sequence[Entry],
    questions: Questions,
    batch: int,
    workers: int,
) -> list[dict[str, Any]]:
    """Sit all questions with every entry; each row is paired with the first, one by one.

    `workers` processes share the entries, each with models of its own: `load` gives that of a
    spec, in its number format.
    """
    work = [(load, entry.spec, questions, batch) for entry in entries]
    with ProcessPoolExecutor(workers, get_context("spawn")) as pool:
        sat = list(pool.map(_sit, *zip(*work, strict=True)))
    return [
        {"name": entry.name} | summarise(entry.spec, sittings) | _paired(sat[0], sittings)
        for entry, sittings in zip(entries, sat, strict=True)
    ]


def _sit(load: Load, spec: RunSpec, questions: Questions, batch: int) -> list[Sitting]:
    torch.set_num_threads(1)
    return list(sit(load(spec), spec, questions, batch))


def mcnemar(gained: int, lost: int) -> float:
    """Two-sided exact McNemar p of `gained` and `lost` discordant pairs."""
    n = gained + lost
    tail = sum(math.comb(n, k) for k in range(min(gained, lost) + 1)) / 2**n
    return min(1.0, 2 * tail)


def time_prompts(
    load: Load, entries: Sequence[Entry], questions: Questions
) -> dict[str, dict[str, Any]]:
    """Decode each long prompt with every entry in turn, one at a time; figures by entry name.

    Times are the engine's own; each ratio is of two runs on the same prompt, side by side, after
    a few steps of every entry that are thrown away.
    """
    runs: dict[str, list[RunFinished]] = {entry.name: [] for entry in entries}
    models: dict[str, LoadedModel] = {}
    for index, (_, prompt) in enumerate(questions):
        for entry in entries:
            spec = _stretched(entry.spec, prompt)
            if index == 0:
                models[entry.name] = load(spec)
                Lane(models[entry.name], spec).warm_up()
            runs[entry.name].append(run_once(models[entry.name], spec))
    base = [dict(event.metrics) for event in runs[entries[0].name]]
    return {
        name: _times([dict(e.metrics) for e in events], base)
        for name, events in runs.items()
        if events
    }


def _stretched(spec: RunSpec, prompt: str) -> RunSpec:
    """The settings over a long prompt and an answer of TIMED_LENGTH, as many tokens a step."""
    steps = max(1, spec.steps * TIMED_LENGTH // spec.gen_length)
    return dataclasses.replace(spec, prompt=prompt, gen_length=TIMED_LENGTH, steps=steps)


def _times(runs: list[dict[str, Any]], base: list[dict[str, Any]]) -> dict[str, Any]:
    pairs = list(zip(base, runs, strict=True))
    return {
        "prompts": len(runs),
        "nfe": median(m["nfe"] for m in runs),
        "ms_per_step": median(m["ms_per_step"] for m in runs),
        "tokens_per_s": median(m["tokens_per_s"] for m in runs),
        "positions_per_s": median(m["positions_per_s"] for m in runs),
        "step_ratio": median(a["ms_per_step"] / b["ms_per_step"] for a, b in pairs),
        "speed_up": median(a["total_ms"] / b["total_ms"] for a, b in pairs),
        "gflops_per_position": median(m["gflops_per_position"] for m in runs),
        "recomputed": median(m["recomputed"] for m in runs),
        "cache_bytes": max(m["cache_bytes"] for m in runs),
    }


def _paired(base: list[Sitting], sittings: list[Sitting]) -> dict[str, Any]:
    gained = sum(b.right and not a.right for a, b in zip(base, sittings, strict=True))
    lost = sum(a.right and not b.right for a, b in zip(base, sittings, strict=True))
    same = [_agreement(a.ids, b.ids) for a, b in zip(base, sittings, strict=True)]
    return {
        "gained": gained,
        "lost": lost,
        "p": mcnemar(gained, lost),
        "agreement": sum(same) / len(same),
    }


def _agreement(a: tuple[int, ...], b: tuple[int, ...]) -> float:
    """Share of places, of the longer answer, that hold the same token."""
    longest = max(len(a), len(b))
    return sum(x == y for x, y in zip(a, b, strict=False)) / longest if longest else 1.0


def check_same(old: dict[str, Any], spec: RunSpec, checkpoint: str) -> None:
    """Raise ValueError where rows compared with `spec` would not stand in a table."""
    if RunSpec.from_dict(old["rows"][0]["spec"]) != spec:
        raise ValueError("add: the first rows differ in their settings; make the table anew")
    if old["environment"]["checkpoint"] != checkpoint:
        raise ValueError("add: the table is of another checkpoint; make the table anew")


def added(old: dict[str, Any], new: dict[str, Any]) -> dict[str, Any]:
    """A table with the rows of another whose first row came out alike; rows of a name renewed.

    Raises ValueError where it did not, so that the pairs would not be the same.
    """
    for key in ("correct", "problems", "nfe"):
        if old["rows"][0][key] != new["rows"][0][key]:
            raise ValueError(f"add: the first rows differ in {key}; make the table anew")
    fresh = {row["name"] for row in new["rows"][1:]}
    kept = [row for row in old["rows"] if row["name"] not in fresh]
    commands = dict.fromkeys([*old["command"].splitlines(), new["command"]])
    return old | {"rows": [*kept, *new["rows"][1:]], "command": "\n".join(commands)}


def markdown(document: dict[str, Any]) -> str:
    """The table, with the command that made it and where."""
    where, rows = document["environment"], document["rows"]
    head = (
        "method", "right", "p", "forwards", "GFLOPs a token", "recomputed", "tokens as plain",
        "cache", "forwards", "ms a step", "a step", "a run", "tokens/s",
    )  # fmt: skip
    lines = [list(head), ["---"] * len(head), *([*map(str, _cells(row))] for row in rows)]
    table = "\n".join("| " + " | ".join(line) + " |" for line in lines)
    notes = (
        f"{rows[0]['problems']} held-out problems, the same for every row; `p` is McNemar's exact "
        "test against the first row. From the second `forwards` on: another, longer task "
        f"({TIMED_LENGTH}-token answers after worked examples, {_prompts(rows)} prompts, one at a "
        "time), ratios to the first row side by side. "
        f"{where['device_name']}, {where['threads']} thread, {where['dtype']}, torch "
        f"{where['torch']}, checkpoint `{where['checkpoint'][:12]}`."
    )
    commands = "\n\n".join(f"`{line}`" for line in document["command"].splitlines())
    return f"{table}\n\n{notes}\n\n{commands}\n"


def _prompts(rows: list[dict[str, Any]]) -> int:
    return rows[0]["speed"]["prompts"] if rows[0]["speed"] else 0


def _cells(row: dict[str, Any]) -> list[str]:
    speed = row["speed"]
    error = f"{100 * row['accuracy']:.1f} ± {100 * row['standard_error']:.1f} %"
    cells = [
        row["name"], error, f"{row['p']:.2g}", f"{row['nfe']:.1f}",
        f"{row['gflops_per_token']:.2f}", f"{row['recomputed']:.0%}", f"{row['agreement']:.1%}",
        f"{row['cache_bytes'] / 1e6:.1f} MB",
    ]  # fmt: skip
    if speed is None:
        return [*cells, "", "", "", "", ""]
    return [
        *cells, f"{speed['nfe']:.0f}", f"{speed['ms_per_step']:.1f}",
        f"{speed['step_ratio']:.2f}x", f"{speed['speed_up']:.2f}x", f"{speed['tokens_per_s']:.0f}",
    ]  # fmt: skip
