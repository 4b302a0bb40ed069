"""BlockKeys: the keys that rows attend to if attention is block-causal."""

from __future__ import annotations

import torch
from torch import Tensor

from engine.core.rows import ALL, Rows, take


class BlockKeys:
    """The keys that the rows of a forward attend to: those up to the end of a row's own block.

    Rows of one block attend to a slice of the keys. Rows of several blocks attend to the slice of
    the last of them, under a mask that ends where each row's block ends. `active` are the rows of
    the forward, `length` the positions of its canvas; `real` [B, T] bool is False at padding, None
    without any. Padding attends to padding, so that no row is without keys.
    """

    def __init__(self, size: int, active: Rows, length: int, real: Tensor | None) -> None:
        self._size, self._active, self._length, self._real = size, active, length, real
        self._known: dict[tuple[int, int], tuple[slice, Tensor | None]] = {}

    def of(self, rows: Rows, device: torch.device) -> tuple[slice, Tensor | None]:
        """The keys of `rows`, some of the active rows (ALL: all), and their mask.

        The mask is [B or 1, n, keys] bool, or [B, keys], or None if all keys are attended to.
        """
        rows = self._active if rows is ALL else rows
        lo, hi = self._bounds(rows if isinstance(rows, slice) else self._active)
        if not isinstance(rows, Tensor):
            if (lo, hi) not in self._known:
                places = torch.arange(lo, hi, device=device)[None]
                self._known[lo, hi] = self._keys(places, lo, hi)
            return self._known[lo, hi]
        return self._keys(rows, lo, hi)

    def _keys(self, places: Tensor, lo: int, hi: int) -> tuple[slice, Tensor | None]:
        """The keys of rows at `places` [B or 1, n], which lie in [lo, hi)."""
        keys = slice(0, min(-(-hi // self._size) * self._size, self._length))
        real = self._real
        if lo // self._size == (hi - 1) // self._size:
            return keys, None if real is None else self._padded(real, places, keys)
        blocks = torch.arange(keys.stop, device=places.device) // self._size
        mask = blocks <= (places // self._size)[..., None]
        return keys, mask if real is None else mask & self._padded(real, places, keys)

    def _padded(self, real: Tensor, places: Tensor, keys: slice) -> Tensor:
        """The real keys, and for rows that are padding all keys, [B, n, keys]."""
        own = take(real, places.expand(len(real), -1))
        return take(real, keys)[:, None] | ~own[..., None]

    def _bounds(self, rows: Rows) -> tuple[int, int]:
        """First row and end of a slice; the whole canvas for ALL and an index."""
        return (rows.start, rows.stop) if isinstance(rows, slice) else (0, self._length)
