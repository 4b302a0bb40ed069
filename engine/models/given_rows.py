"""GivenRows: embedding rows that are given to a run in place of those of token ids."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

import torch
from torch import Tensor

from engine.core.rows import ALL, Rows


class GivenRows:
    """Embedding rows of a canvas of `length` positions, as those of images in a prompt.

    `spans` holds the first position and the rows [n, D] of each contiguous part, on the device and
    in the dtype of the model.
    """

    def __init__(self, length: int, spans: Sequence[tuple[int, Tensor]]) -> None:
        self._length, self._spans = length, tuple(spans)

    @property
    def nbytes(self) -> int:
        """Bytes of all rows."""
        return sum(values.nbytes for _, values in self._spans)

    def put(self, h: Tensor, rows: Rows) -> Tensor:
        """`h` [B, n, D] at global `rows` with the given rows in their places.

        At ALL and slices `h` is changed in place.
        """
        if isinstance(rows, Tensor):
            place = self._places[rows]
            given = self._values[place.clamp_min(0)]
            return torch.where((place >= 0)[..., None], given, h)
        start, stop = (0, self._length) if rows is ALL else (rows.start, rows.stop)
        for first, values in self._spans:
            lo, hi = max(first, start), min(first + len(values), stop)
            if lo < hi:
                h[:, lo - start : hi - start] = values[lo - first : hi - first]
        return h

    @cached_property
    def _values(self) -> Tensor:
        return torch.cat([values for _, values in self._spans])

    @cached_property
    def _places(self) -> Tensor:
        """The row of `_values` for each position [T], -1 where none is given."""
        places = torch.full((self._length,), -1, device=self._values.device)
        done = 0
        for first, values in self._spans:
            found = torch.arange(done, done + len(values), device=places.device)
            places[first : first + len(values)] = found
            done += len(values)
        return places
