"""GPU targets: how close a step must come to the rates measured on the same device."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from statistics import median
from typing import Any

import torch

from engine.core.device import synchronized_time
from engine.core.tables import markdown_table

SIDE, COPIED = 8192, 2**30  # side of the square matrices; bytes
REPEATS = 20
BOUNDED = ("dllm_cache", "spa_cache")


def rates(device: torch.device, dtype: torch.dtype) -> dict[str, Callable[[], float]]:
    """Functions that measure a device: FLOP/s of a dense product, bytes/s of a copy.

    A copy counts the bytes that it reads and those that it writes.
    """
    left, right, product = (torch.ones(SIDE, SIDE, dtype=dtype, device=device) for _ in range(3))
    source, target = (torch.ones(COPIED, dtype=torch.uint8, device=device) for _ in range(2))
    multiply = partial(torch.mm, left, right, out=product)
    return {
        "flops_per_s": partial(_rate, multiply, 2 * SIDE**3, device),
        "bytes_per_s": partial(_rate, partial(target.copy_, source), 2 * COPIED, device),
    }


def _rate(work: Callable[[], Any], amount: int, device: torch.device) -> float:
    """`amount` per second, over REPEATS calls after one that is not timed."""
    work()
    started = synchronized_time(device)
    for _ in range(REPEATS):
        work()
    return amount * REPEATS / (synchronized_time(device) - started)


def check(
    rows: Sequence[Mapping[str, Any]], measured: Mapping[str, Sequence[float]]
) -> list[dict[str, Any]]:
    """Compare rows of `engine.bench.report` with the targets, at the medians of measured rates.

    A target whose row is missing is left out.
    """
    known = {(row["group"], row["name"]): row["kinds"] for row in rows}
    flops_per_s, bytes_per_s = (median(measured[key]) for key in ("flops_per_s", "bytes_per_s"))
    out = []
    for group in dict.fromkeys(row["group"] for row in rows):
        for cache, goal, at_least, ratio in _GOALS:
            kind = known.get((group, cache), {}).get("full" if cache == "none" else "partial")
            if kind is not None:
                reached = ratio(kind, flops_per_s, bytes_per_s)
                met = (reached >= goal) == at_least
                out.append(
                    {"model": group, "cache": cache, "goal": goal, "reached": reached, "met": met}
                )
    return out


def _share_of_flops(kind: Mapping[str, Any], flops_per_s: float, bytes_per_s: float) -> float:
    return kind["flops"] / (kind["ms"] / 1e3) / flops_per_s


def _over_weight_read(kind: Mapping[str, Any], flops_per_s: float, bytes_per_s: float) -> float:
    return kind["ms"] / 1e3 / (kind["weight_bytes"] / bytes_per_s)


def _over_roofline(kind: Mapping[str, Any], flops_per_s: float, bytes_per_s: float) -> float:
    return kind["ms"] / 1e3 / max(kind["bytes"] / bytes_per_s, kind["flops"] / flops_per_s)


# Cache, target, whether it is a lower bound, and what is compared with it.
_GOALS = (
    ("none", 0.6, True, _share_of_flops),
    ("dual", 1.5, False, _over_weight_read),
    *((name, 1.5, False, _over_roofline) for name in BOUNDED),
)
_TEXTS = {
    "none": "full step: share of the dense matrix rate, at least {}",
    "dual": "partial step: times as long as reading the weights once, at most {}",
    **dict.fromkeys(
        BOUNDED, "partial step: times as long as its bytes or its FLOPs, the larger, at most {}"
    ),
}


def table(found: Sequence[Mapping[str, Any]]) -> str:
    """The result of `check` as Markdown."""
    lines = [
        (row["model"], row["cache"], _TEXTS[row["cache"]].format(row["goal"]),
         f"{row['reached']:.2f}", "yes" if row["met"] else "no")
        for row in found
    ]  # fmt: skip
    return markdown_table(("model", "cache", "target", "reached", "met"), lines)
