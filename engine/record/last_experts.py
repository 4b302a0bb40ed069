"""LastExperts: the experts that each row used last, and how many of them are others now."""

from __future__ import annotations

import torch
from torch import Tensor

from engine.core.drift_codes import NOT_EVALUATED
from engine.core.events import RecordedCells
from engine.core.rows import ALL, Rows, is_empty

NONE = -1  # in place of an expert of a row that was never computed
MOST = NOT_EVALUATED - 1


def count_changes(new: Tensor, old: Tensor) -> Tensor:
    """How many of the experts `new` [..., k] are not among `old` [..., k], uint8 [...].

    NOT_EVALUATED where either is not known.
    """
    others = (new[..., :, None] != old[..., None, :]).all(-1).sum(-1).clamp_max(MOST)
    known = (new[..., 0] != NONE) & (old[..., 0] != NONE)
    return others.masked_fill(~known, NOT_EVALUATED).to(torch.uint8)


class LastExperts:
    """Of one sequence and the recorded layers, the experts with which each row was last computed.

    `active` is the number of experts of a row. Memory: 2 bytes for each recorded layer, position
    and active expert. Layers without experts have none.
    """

    def __init__(
        self, active: int, cells: RecordedCells, length: int, device: torch.device
    ) -> None:
        shape = (len(cells.layers), length)
        self.ids = torch.full((*shape, active), NONE, dtype=torch.int16, device=device)
        self._changes = torch.full(shape, NOT_EVALUATED, dtype=torch.uint8, device=device)

    def update(self, place: int, rows: Rows, experts: Tensor) -> None:
        """Store the `experts` [1, n, k] that recorded layer `place` used at `rows`."""
        if is_empty(rows):
            return
        where = slice(None) if rows is ALL else rows[0] if isinstance(rows, Tensor) else rows
        new, own = experts[0].to(torch.int16), self.ids[place]
        self._changes[place, where] = count_changes(new, own[where])
        own[where] = new

    def take_changes(self) -> Tensor:
        """Changed experts [I, T] uint8 of the rows computed since the last call.

        NOT_EVALUATED for a row that was not computed, or for the first time.
        """
        found = self._changes.clone()
        self._changes.fill_(NOT_EVALUATED)
        return found
