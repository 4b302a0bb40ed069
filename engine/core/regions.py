"""Regions of the canvas (prompt, current block, rest of the answer) and what a step does to them.

A row belongs to the region of the token that it predicts. If the model's logits are shifted, the
rows of the answer and of each block begin `shift` before their first token. Tokens of the prompt
that share a block with the answer belong to that block while it is decoded.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from engine.core.events import KINDS

REGIONS = ("prompt", "block", "rest")


def region_rows(prompt: int, block: slice, length: int, shift: int) -> np.ndarray:
    """Masks [3, T] bool of the rows of REGIONS on a canvas of `length` = T positions.

    `prompt` counts its tokens; `block` is in canvas positions; `shift` is ModelInfo.region_shift.
    """
    places, first = np.arange(length), max(prompt - shift, 0)
    inside = (places >= max(block.start - shift, 0)) & (places < block.stop)
    return np.stack(((places < first) & ~inside, inside, (places >= first) & ~inside))


def window_kinds(areas: np.ndarray, window: slice, reuse: str) -> tuple[str, str, str]:
    """The kind of each region [3, T] if exactly the rows of `window` are recomputed.

    `reuse` is the kind of a region without recomputed rows (see `reuse_kind`). An empty region is
    `full`.
    """
    recomputed = np.zeros(areas.shape[1], bool)
    recomputed[window] = True
    prompt, block, rest = (
        "full" if recomputed[area].all() else "partial" if recomputed[area].any() else reuse
        for area in areas
    )
    return prompt, block, rest


def reuse_kind(recomputed_later: bool) -> str:
    """The kind of a region without recomputed rows: `reuse`, or `frozen` if that is final."""
    return "reuse" if recomputed_later else "frozen"


def is_refresh_step(step: int, interval: int | None) -> bool:
    """Whether a region is refreshed in a step: in the first, and then at the interval, if any."""
    return step == 0 or (interval is not None and step % interval == 0)


def refreshes_within(step: int, interval: int | None, left: int) -> bool:
    """Whether one of the `left` steps after `step` is a refresh step of `interval`."""
    return interval is not None and step % interval + left >= interval


def recomputed_kinds(
    plan: np.ndarray, areas: Callable[[int], np.ndarray], length: int
) -> np.ndarray:
    """Kinds [S, 3] uint8 (index into KINDS) of the regions of each step, by a trace's plan.

    `plan` is [S, layers, sites, ceil(T/8)] uint8, `length` is T. `areas` gives the rows [3, T] bool
    of the regions in a step. One step at a time is unpacked, since a trace may have many.
    """
    kinds, later = np.zeros((len(plan), 3), np.uint8), np.zeros(length, bool)
    for step in reversed(range(len(plan))):
        some, every = (
            np.unpackbits(reduce(plan[step], (0, 1)), count=length).view(bool)
            for reduce in (np.bitwise_or.reduce, np.bitwise_and.reduce)
        )
        for region, rows in enumerate(areas(step)):
            kinds[step, region] = KINDS.index(_kind(some, every, later, rows))
        later |= some
    return kinds


def _kind(some: np.ndarray, every: np.ndarray, later: np.ndarray, rows: np.ndarray) -> str:
    if every[rows].all():
        return "full"
    return "partial" if some[rows].any() else reuse_kind(bool(later[rows].any()))
