"""GPU targets: steps beside the rates measured on the same device, waits, and memory."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from operator import ge, le
from statistics import median
from typing import Any

import torch

from engine.core.device import synchronized_time
from engine.core.tables import markdown_table

SIDE, COPIED = 8192, 2**30  # side of the square matrices; bytes
REPEATS = 20
BOUNDED = ("dllm_cache", "spa_cache")
COMPARED = ("none", "dual", *BOUNDED)  # also timed without captures


def rates(device: torch.device, dtype: torch.dtype) -> dict[str, Callable[[], float]]:
    """Functions that measure a device: FLOP/s of a dense product, bytes/s of a copy.

    A copy counts the bytes that it reads and those that it writes.
    """
    return {
        "flops_per_s": partial(_dense_rate, device, dtype),
        "bytes_per_s": partial(_copy_rate, device),
    }


def _dense_rate(device: torch.device, dtype: torch.dtype) -> float:
    """FLOP/s of random matrices; those of equal numbers need less power, and are faster."""
    left, right, out = (torch.randn(SIDE, SIDE, dtype=dtype, device=device) for _ in range(3))
    return _rate(partial(torch.mm, left, right, out=out), 2 * SIDE**3, device)


def _copy_rate(device: torch.device) -> float:
    source, target = (torch.ones(COPIED, dtype=torch.uint8, device=device) for _ in range(2))
    return _rate(partial(target.copy_, source), 2 * COPIED, device)


def _rate(work: Callable[[], Any], amount: int, device: torch.device) -> float:
    """`amount` per second, over REPEATS calls after one that is not timed."""
    work()
    started = synchronized_time(device)
    for _ in range(REPEATS):
        work()
    return amount * REPEATS / (synchronized_time(device) - started)


Found = Mapping[str, Any]


@dataclass(frozen=True)
class Target:
    """What a row of a cache should reach.

    Attributes:
        text: what is compared; `{}` stands for the goal.
        reached: the value of a row at rates in FLOP/s and bytes/s; None if it has none.
        met: whether a value meets a goal.
    """

    cache: str
    goal: float
    text: str
    reached: Callable[[Found, float, float], float | None]
    met: Callable[[float, float], bool]


def check(rows: Sequence[Found], measured: Mapping[str, Sequence[float]]) -> list[dict[str, Any]]:
    """Compare rows of `engine.bench.report` with the targets, at the medians of measured rates.

    A target whose row or value is missing is left out.
    """
    known = {(row["group"], row["name"]): row for row in rows}
    rates_found = [median(measured[key]) for key in ("flops_per_s", "bytes_per_s")]
    out = []
    for group in dict.fromkeys(row["group"] for row in rows):
        for target in TARGETS:
            row = known.get((group, target.cache))
            reached = None if row is None else target.reached(row, *rates_found)
            if reached is not None:
                out.append({
                    "model": group, "cache": target.cache, "goal": target.goal,
                    "target": target.text.format(target.goal), "reached": reached,
                    "met": target.met(reached, target.goal),
                })  # fmt: skip
    return out


def _share_of_flops(row: Found, flops_per_s: float, bytes_per_s: float) -> float | None:
    kind = row["kinds"].get("full")
    return kind and kind["flops"] / (kind["ms"] / 1e3) / flops_per_s


def _over_weight_read(row: Found, flops_per_s: float, bytes_per_s: float) -> float | None:
    kind = row["kinds"].get("partial")
    return kind and kind["ms"] / 1e3 / (kind["weight_bytes"] / bytes_per_s)


def _over_roofline(row: Found, flops_per_s: float, bytes_per_s: float) -> float | None:
    kind = row["kinds"].get("partial")
    floor = kind and max(kind["bytes"] / bytes_per_s, kind["flops"] / flops_per_s)
    return kind and kind["ms"] / 1e3 / floor


def _waits_inside(row: Found, flops_per_s: float, bytes_per_s: float) -> float | None:
    return None if row["waits"] is None else float(row["waits"][0])


def _over_planned_memory(row: Found, flops_per_s: float, bytes_per_s: float) -> float | None:
    """None on a CPU, whose peak is that of the whole process."""
    return None if row["waits"] is None else row["peak_bytes"] / row["planned_bytes"]


def _near_one(reached: float, goal: float) -> bool:
    return abs(reached - 1) <= goal


_FULL = "full step: share of the dense matrix rate, at least {}"
_WEIGHTS = "partial step: times as long as reading the weights once, at most {}"
_ROOFLINE = "partial step: times as long as its bytes or its FLOPs, the larger, at most {}"
_WAITS = "waits of the host while a step is launched, at most {}"
_MEMORY = "peak memory over that of the plan, within {} of 1"
TARGETS = (
    Target("none", 0.6, _FULL, _share_of_flops, ge),
    Target("dual", 1.5, _WEIGHTS, _over_weight_read, le),
    *(Target(name, 1.5, _ROOFLINE, _over_roofline, le) for name in BOUNDED),
    *(Target(name, 0, _WAITS, _waits_inside, le) for name in COMPARED),
    *(Target(name, 0.03, _MEMORY, _over_planned_memory, _near_one) for name in COMPARED),
)


def table(found: Sequence[Found]) -> str:
    """The result of `check` as Markdown."""
    lines = [
        (row["model"], row["cache"], row["target"], f"{row['reached']:.2f}",
         "yes" if row["met"] else "no")
        for row in found
    ]  # fmt: skip
    return markdown_table(("model", "cache", "target", "reached", "met"), lines)
