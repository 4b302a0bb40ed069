"""Regions: the prompt, the block being decoded and the rest of the answer, as rows of the canvas.

A row belongs with the token that it predicts where logits are shifted: the answer's rows begin
`shift` before its first token, and the block's `shift` before the block.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from engine.core.events import KINDS

REGIONS = ("prompt", "block", "rest")


def regions(prompt: int, block: slice, length: int, shift: int) -> np.ndarray:
    """The rows of the three regions, [3, T] bool; `prompt` counts its tokens, `block` is global."""
    places, first = np.arange(length), max(prompt - shift, 0)
    inside = (places >= max(block.start - shift, 0)) & (places < block.stop)
    return np.stack((places < first, inside, (places >= first) & ~inside))


def covered(areas: np.ndarray, window: slice, kept: str) -> tuple[str, str, str]:
    """The kind of each region where the rows of `window` are recomputed whole.

    `kept` is the kind of a region of which nothing is recomputed; an empty one is `full`.
    """
    fed = np.zeros(areas.shape[1], bool)
    fed[window] = True
    prompt, block, rest = (
        "full" if fed[area].all() else "partial" if fed[area].any() else kept for area in areas
    )
    return prompt, block, rest


def kept(again: bool) -> str:
    """The kind of a region that rests, by whether it may be renewed once more."""
    return "reuse" if again else "frozen"


def due(step: int, interval: int | None) -> bool:
    """Whether a region is renewed in a step; the first step always is."""
    return step == 0 or (interval is not None and step % interval == 0)


def renews(step: int, interval: int | None, left: int) -> bool:
    """Whether an interval ends once more within the `left` steps after `step`."""
    return interval is not None and step % interval + left >= interval


def done(plan: np.ndarray, areas: Iterable[np.ndarray], length: int) -> np.ndarray:
    """Kinds [S, 3] uint8 (into KINDS) of each step's `areas` [3, T] bool by the rows recomputed.

    `plan` [S, layers, sites, ceil(T/8)] is packed as in a trace.
    """
    some, every = (
        np.unpackbits(reduce(plan, (1, 2)), axis=-1, count=length).astype(bool)
        for reduce in (np.bitwise_or.reduce, np.bitwise_and.reduce)
    )
    kinds, later = np.zeros((len(plan), 3), np.uint8), np.zeros(length, bool)
    for step, regions_then in reversed(list(enumerate(areas))):
        for region, rows in enumerate(regions_then):
            kinds[step, region] = KINDS.index(_kind(some[step], every[step], later, rows))
        later |= some[step]
    return kinds


def _kind(some: np.ndarray, every: np.ndarray, later: np.ndarray, rows: np.ndarray) -> str:
    if every[rows].all():
        return "full"
    return "partial" if some[rows].any() else kept(bool(later[rows].any()))
