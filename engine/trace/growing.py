"""GrowingArray: an array to which rows are appended while it can be read."""

from __future__ import annotations

from typing import Any

import numpy as np


class GrowingArray:
    """Rows of one type and shape, in memory that is reserved for `capacity` rows.

    The operating system provides reserved memory once rows are written to it, so a capacity that
    is too large costs nothing. Rows beyond it are moved to half as much memory again.
    """

    def __init__(self, dtype: str, capacity: int) -> None:
        self._dtype, self._capacity = dtype, capacity
        self._buffer: np.ndarray | None = None
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def append(self, rows: np.ndarray) -> None:
        """Append `rows` [n, ...]."""
        needed = self._count + len(rows)
        if self._buffer is None or needed > len(self._buffer):
            size = max(self._capacity, needed, 3 * self._count // 2)
            bigger = np.empty((size, *rows.shape[1:]), self._dtype)
            if self._buffer is not None:
                bigger[: self._count] = self.rows
            self._buffer = bigger
        self._buffer[self._count : needed] = rows
        self._count = needed

    @property
    def rows(self) -> np.ndarray:
        """The rows so far, a view that later rows do not change."""
        return np.empty(0, self._dtype) if self._buffer is None else self._buffer[: self._count]

    def __getstate__(self) -> dict[str, Any]:
        """The state to pickle, without the memory that is only reserved."""
        return vars(self) | {"_buffer": None if self._buffer is None else self.rows}
