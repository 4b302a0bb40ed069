"""Numbers of rows: set bits of recorded plans, and drift codes above a threshold."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from engine.core.drift_codes import NOT_EVALUATED

STEPS = 64


def step_windows(steps: int) -> Iterator[slice]:
    """Windows of STEPS steps, which are counted one by one so that their copies are small."""
    return (slice(start, start + STEPS) for start in range(0, steps, STEPS))


def count_bits(bits: np.ndarray, low: int, high: int) -> np.ndarray:
    """Number of set bits of the rows [low, high), int32 [S, ...].

    `bits` [S, ..., W] uint8 holds rows as np.packbits packs them. One step at a time is counted, so
    that the memory needed does not grow with S.
    """
    places = np.arange(8 * bits.shape[-1])
    mask = np.packbits((places >= low) & (places < high))
    counts = [popcount(plane & mask) for plane in bits]
    return np.reshape(np.array(counts, np.int32), bits.shape[:-1])


def count_above(codes: np.ndarray, code: int) -> np.ndarray:
    """Number of rows with a drift code above `code`, int32 [S, L].

    `codes` [S, L, T] uint8 are drift codes; rows without a drift (NOT_EVALUATED) are not counted,
    so that -1 counts all rows with a drift. `code` is at least -1 and below NOT_EVALUATED.
    """
    low, width = np.uint8(code + 1), np.uint8(NOT_EVALUATED - 1 - code)
    inside = (plane - low < width for plane in codes)  # unsigned: below low, it wraps to the top
    counts = [popcount(np.packbits(flags, axis=-1)) for flags in inside]
    return np.reshape(np.array(counts, np.int32), codes.shape[:-1])


def popcount(bits: np.ndarray) -> np.ndarray:
    """Number of set bits along the last axis of `bits` [..., W] uint8, int32 [...]."""
    spare = -bits.shape[-1] % 8
    if spare:
        bits = np.concatenate((bits, np.zeros((*bits.shape[:-1], spare), np.uint8)), -1)
    words = np.ascontiguousarray(bits).view(np.uint64)
    counts: np.ndarray = np.bitwise_count(words).sum(-1, dtype=np.int32)
    return counts
