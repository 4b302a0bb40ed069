"""Reduction: heat maps with more cells than a screen or a message, and how they are joined."""

from __future__ import annotations

import numpy as np

from engine.core.drift_codes import DRIFTS, NOT_EVALUATED, encode

MAX_BYTES = 1_900_000  # of the cells of a heat map
SHARE_SCALE = 254
FEW = 64


def factors(shape: tuple[int, ...], sides: tuple[int, int], itemsize: int) -> tuple[int, int]:
    """The numbers of rows and columns that fall into one cell.

    They are the smallest that give at most `sides` rows and columns; then the longer side is
    reduced further until the cells of `itemsize` bytes are at most MAX_BYTES.
    """
    found = [max(-(-size // side), 1) for size, side in zip(shape, sides, strict=True)]
    while True:
        left = [-(-size // factor) for size, factor in zip(shape, found, strict=True)]
        if left[0] * left[1] * itemsize <= MAX_BYTES:
            return found[0], found[1]
        found[int(left[1] > left[0])] += 1


def by_maximum(codes: np.ndarray, by: tuple[int, int]) -> np.ndarray:
    """The largest code of each cell [rows, columns]; its type's maximum, no data, only if all are.

    `codes` is an array of unsigned integers, `by` the numbers of rows and columns of a cell.
    """
    if by == (1, 1):
        return codes
    shifted = codes + codes.dtype.type(1)  # no data becomes 0, the smallest
    return _folded(np.maximum, _folded(np.maximum, shifted, by[0], 0), by[1], 1) - 1


def by_minimum(codes: np.ndarray, by: tuple[int, int]) -> np.ndarray:
    """The smallest code of each cell [rows, columns]; its type's maximum is no data."""
    return _folded(np.minimum, _folded(np.minimum, codes, by[0], 0), by[1], 1)


def by_mean(codes: np.ndarray, by: tuple[int, int]) -> np.ndarray:
    """The code of the mean drift of each cell, without rows that were not evaluated.

    `codes` uint8 are drift codes, `by` the numbers of rows and columns of a cell.
    """
    if by == (1, 1):
        return codes
    known = codes != NOT_EVALUATED
    sums, counts = (
        summed(values, by) for values in (np.where(known, DRIFTS[codes], 0), known.astype(float))
    )
    return encode(np.where(counts > 0, sums / np.maximum(counts, 1), np.nan))


def by_share(flags: np.ndarray, by: tuple[int, int]) -> np.ndarray:
    """The share of true flags in each cell times SHARE_SCALE, uint8."""
    sums = summed(flags.astype(np.float32), by)
    sizes = summed(np.ones((flags.shape[0], 1), np.float32), (by[0], 1)) * summed(
        np.ones((1, flags.shape[1]), np.float32), (1, by[1])
    )
    return np.round(SHARE_SCALE * sums / sizes).astype(np.uint8)


def summed(values: np.ndarray, by: tuple[int, int]) -> np.ndarray:
    """The sum of each cell of `by` rows and columns."""
    return _folded(np.add, _folded(np.add, values, by[0], 0), by[1], 1)


def _folded(combine: np.ufunc, array: np.ndarray, factor: int, axis: int) -> np.ndarray:
    """Combine each `factor` neighbours along an axis; the last group may be smaller."""
    size = array.shape[axis]
    if factor == 1 or not array.size:
        return array
    if factor > FEW:
        return np.asarray(combine.reduceat(array, np.arange(0, size, factor), axis))

    def every(start: int) -> np.ndarray:
        return array[start::factor] if axis == 0 else array[:, start::factor]

    out = every(0).copy()
    for start in range(1, min(factor, size)):
        part = every(start)
        own = out[: len(part)] if axis == 0 else out[:, : part.shape[1]]
        combine(own, part, out=own)
    return out
