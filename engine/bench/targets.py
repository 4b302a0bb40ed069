"""Targets: what a GPU must reach, against rates that are measured on it in the same rounds."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from statistics import median
from typing import Any

import torch

from engine.bench import suite
from engine.bench.report import NOT_RUN, aligned
from engine.core.device import now

SIDE, COPIED = 8192, 2**30  # of the square matrices; bytes
REPEATS = 20
ROOFED = ("dllm_cache", "spa_cache")


def rates(device: torch.device, dtype: torch.dtype) -> dict[str, Callable[[], float]]:
    """What measures a device: FLOP/s of dense products, bytes/s of a copy, read and written."""
    left, right, product = (torch.ones(SIDE, SIDE, dtype=dtype, device=device) for _ in range(3))
    source, target = (torch.ones(COPIED, dtype=torch.uint8, device=device) for _ in range(2))
    multiply = partial(torch.mm, left, right, out=product)
    return {
        "flops_per_s": partial(_rate, multiply, 2 * SIDE**3, device),
        "bytes_per_s": partial(_rate, partial(target.copy_, source), 2 * COPIED, device),
    }


def _rate(work: Callable[[], Any], amount: int, device: torch.device) -> float:
    """`amount` a second, over a few repeats after one that is not timed."""
    work()
    started = now(device)
    for _ in range(REPEATS):
        work()
    return amount * REPEATS / (now(device) - started)


def check(
    found: Sequence[Mapping[str, Any]], measured: Mapping[str, Sequence[float]]
) -> list[dict[str, Any]]:
    """Every target with what was reached; None where a row is missing.

    `found` are rows of engine.bench.report, `measured` what `rates` gave.
    """
    known = {(row["group"], row["name"]): row["kinds"] for row in found}
    rate, speed = (median(measured[key]) for key in ("flops_per_s", "bytes_per_s"))
    out = []
    for group in dict.fromkeys(row["group"] for row in found):
        for name, goal, at_least, reach in _GOALS:
            kind = known.get((group, name), {}).get("full" if name == "none" else "partial")
            reached = None if kind is None else reach(kind, rate, speed)
            met = None if reached is None else (reached >= goal) == at_least
            out.append(
                {"model": group, "cache": name, "goal": goal, "reached": reached, "met": met}
            )
    return out


def _utilised(kind: Mapping[str, Any], rate: float, speed: float) -> float:
    return kind["flops"] / (kind["ms"] / 1e3) / rate


def _readings(kind: Mapping[str, Any], rate: float, speed: float) -> float:
    return kind["ms"] / 1e3 / (kind["weight_bytes"] / speed)


def _over_roof(kind: Mapping[str, Any], rate: float, speed: float) -> float:
    return kind["ms"] / 1e3 / max(kind["bytes"] / speed, kind["flops"] / rate)


_GOALS = (
    ("none", 0.6, True, _utilised),
    ("dual", 1.5, False, _readings),
    *((name, 1.5, False, _over_roof) for name in ROOFED),
)
_WORDS = {
    "none": "full step: share of the dense matrix rate, at least {}",
    "dual": "partial step: times as long as reading the weights once, at most {}",
    **dict.fromkeys(
        ROOFED, "partial step: times as long as its bytes or its FLOPs, the larger, at most {}"
    ),
}


def table(found: Sequence[Mapping[str, Any]]) -> str:
    """Markdown; "not run" where nothing was reached."""
    known = {(row["model"], row["cache"]): row for row in found}
    lines: list[list[str]] = [["model", "cache", "target", "reached", "met"], ["---"] * 5]
    for group in suite.GPU_MODELS.values():
        for name, goal, *_ in _GOALS:
            row = known.get((group, name))
            shown = [NOT_RUN, ""]
            if row is not None and row["reached"] is not None:
                shown = [f"{row['reached']:.2f}", "yes" if row["met"] else "no"]
            lines.append([group, name, _WORDS[name].format(goal), *shown])
    return aligned(lines)
