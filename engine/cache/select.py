"""Selection of rows by how much they moved."""

from __future__ import annotations

from torch import Tensor


def share(ratio: float, rows: int) -> int:
    """Rows that a ratio above 0 comes to: floor, at least one."""
    return max(1, int(ratio * rows))


def most_drifted(moved: Tensor, count: int, start: int) -> Tensor:
    """The `count` rows of largest `moved` [B, n], ties to the lower, as global rows [B, count].

    `start` is the global position of row 0; the result ascends.
    """
    order = moved.argsort(dim=1, descending=True, stable=True)
    return order[:, :count].sort(dim=1).values + start
