"""Tokens: a run's canvas on its device, and on the host as far as the host has been told."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from engine.host import upload


class Tokens:
    """`canvas` [B, T] int64 and `open` [B, T] bool (masked positions) are kept on the device.

    `ids` and `masked` are the same on the host; they change when a step is told, which may be
    after the next has been asked for. Both pairs are changed in place.
    """

    def __init__(self, canvas: Tensor, masked: np.ndarray, device: torch.device) -> None:
        self._first = canvas.numpy().copy(), masked.copy()
        batch, self._length = canvas.shape
        # One column more takes what is not committed, so that no step depends on how many are.
        self._ids = torch.zeros(batch, self._length + 1, dtype=torch.int64, device=device)
        self._open = torch.zeros(batch, self._length + 1, dtype=torch.bool, device=device)
        self.canvas, self.open = self._ids[:, :-1], self._open[:, :-1]
        self.ids, self.masked = canvas.numpy().copy(), masked.copy()
        self.rewind()

    def rewind(self) -> None:
        """As before the first step."""
        for kept, mine, first in (
            (self.ids, self.canvas, self._first[0]),
            (self.masked, self.open, self._first[1]),
        ):
            kept[:] = first
            mine.copy_(upload(first, mine.device))

    def commit(self, needs: Tensor, chosen: Tensor, ids: Tensor) -> Tensor:
        """Put `ids` [B, n] at the `chosen` of the positions `needs`; on the device alone.

        Gives the positions [B, n], T where nothing was chosen.
        """
        places = needs.masked_fill(~chosen, self._length)
        self._ids.scatter_(1, places, ids)
        self._open.scatter_(1, places, False)
        return places

    def tell(self, sequences: np.ndarray, positions: np.ndarray, ids: np.ndarray) -> None:
        """Note on the host what was committed on the device, one entry a token."""
        self.ids[sequences, positions] = ids
        self.masked[sequences, positions] = False

    def fill(self, mask: np.ndarray, token: int) -> None:
        """Put a token wherever `mask` [B, T] says, on both sides."""
        self.ids[mask], self.masked[mask] = token, False
        places = upload(mask, self.open.device)
        self.canvas.masked_fill_(places, token)
        self.open.masked_fill_(places, False)
