"""Row sets over a canvas: ALL, a slice, or an index tensor [B, n] of positions in the canvas.

Index rows ascend. A sequence with fewer rows than others of its batch repeats one of them, so
that a write stores equal values twice.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from typing import Final

import numpy as np
import torch
from torch import Tensor

from engine.core.device import upload


class _All(Enum):
    """The type of ALL, every row."""

    ALL = "all"


ALL: Final = _All.ALL
Rows = _All | slice | Tensor
NONE: Final = slice(0, 0)


def count(rows: Rows, length: int) -> int:
    """Number of rows per sequence, on a canvas of `length` rows."""
    if rows is ALL:
        return length
    return rows.stop - rows.start if isinstance(rows, slice) else rows.shape[1]


def is_empty(rows: Rows) -> bool:
    """Whether the set has no rows; it is usually NONE."""
    return rows is not ALL and count(rows, 0) == 0


def same_rows(a: Rows, b: Rows) -> bool:
    """Whether two sets are equal as far as that is known without reading device data."""
    if isinstance(a, slice) and isinstance(b, slice):
        return (a.start, a.stop) == (b.start, b.stop)
    return a is b


def take(x: Tensor, rows: Rows, dim: int = 1) -> Tensor:
    """`x` [B, ..., T, ...] at `rows` of dimension `dim` (1 or 2); a view for ALL and slices."""
    if rows is ALL:
        return x
    if isinstance(rows, slice):
        return x.narrow(dim, rows.start, rows.stop - rows.start)
    if rows.shape[0] == 1:
        return x.index_select(dim, rows[0])
    return x.gather(dim, _expanded(rows, x, dim))


def put(x: Tensor, rows: Rows, values: Tensor, dim: int = 1) -> None:
    """Write `values` [B, ..., n, ...] into `x` at `rows` of dimension `dim`, in place."""
    if not isinstance(rows, Tensor):
        take(x, rows, dim).copy_(values)
    elif rows.shape[0] == 1:
        x.index_copy_(dim, rows[0], values)
    else:
        x.scatter_(dim, _expanded(rows, x, dim), values)


def unrepeated(rows: Rows, like: Tensor) -> Tensor:
    """0 for index rows that repeat the row before them, else 1; shape and type of `like`."""
    ones = torch.ones_like(like)
    if isinstance(rows, Tensor):
        ones[:, 1:] = rows[:, 1:] != rows[:, :-1]
    return ones


def local_rows(active: Rows, rows: Rows) -> Rows:
    """`rows`, a subset of `active`, as places within `active`."""
    if rows is ALL or same_rows(rows, active):
        return ALL
    if active is ALL:
        return rows
    if isinstance(active, slice):
        if isinstance(rows, slice):
            return slice(rows.start - active.start, rows.stop - active.start)
        return rows - active.start
    if isinstance(rows, slice):
        rows = torch.arange(rows.start, rows.stop, device=active.device).expand(len(active), -1)
    return torch.searchsorted(active.contiguous(), rows.contiguous())


def to_mask(rows: Rows, batch: int, length: int) -> Tensor:
    """A row set as a bool mask [B, T] on the CPU."""
    mask = torch.zeros(batch, length, dtype=torch.bool)
    if isinstance(rows, Tensor):
        return mask.scatter_(1, rows.cpu(), True)
    take(mask, rows).fill_(True)
    return mask


def positions_mask(positions: Sequence[np.ndarray], length: int) -> np.ndarray:
    """A bool mask [B, T] of `positions`, one array per sequence."""
    mask = np.zeros((len(positions), length), bool)
    for row, places in zip(mask, positions, strict=True):
        row[places] = True
    return mask


def from_mask(mask: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The rows of a bool mask [B, T] as an index [B, n], and which are no padding, [B, n] bool.

    A sequence with fewer rows is padded with its last one, or with row 0 if it has none.
    """
    if len(mask) == 1 and (only := np.flatnonzero(mask[0])).size:  # no padding
        return only[None], np.ones((1, only.size), bool)
    places, real = _ranks(mask.sum(1))
    order = np.argsort(~mask, axis=1, kind="stable")
    return np.take_along_axis(order, places, 1), real


def upload_mask(mask: np.ndarray, device: torch.device) -> Tensor:
    """The index of `from_mask` on a device."""
    return upload(from_mask(mask)[0], device)


def from_device_mask(mask: Tensor, counts: np.ndarray) -> tuple[Tensor, np.ndarray]:
    """`from_mask` of a mask on a device, without a wait: its row counts [B] are given."""
    places, real = _ranks(counts)
    order = (~mask).to(torch.uint8).argsort(dim=1, stable=True)
    return order.gather(1, upload(places, mask.device)), real


def _ranks(counts: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Ranks [B, n] of `counts` [B] rows, the last repeated as padding, and which are not padding.

    n is the largest count, at least 1.
    """
    wide = max(int(counts.max()), 1)
    places = np.minimum(np.arange(wide), np.maximum(counts[:, None] - 1, 0))
    return places, np.arange(wide) < counts[:, None]


def _expanded(rows: Tensor, x: Tensor, dim: int) -> Tensor:
    """Index rows [B, n] in the shape that gather and scatter need for `x`."""
    shape = [1] * x.ndim
    shape[0], shape[dim] = rows.shape
    size = list(x.shape)
    size[dim] = rows.shape[1]
    return rows.view(shape).expand(size)
