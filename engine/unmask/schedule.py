"""The even schedule: how many tokens a step of a block owes (LLaDA, arXiv 2502.09992)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch


class BlockProgress(NamedTuple):
    """A block that a parent run has begun: the masks that it opened with, the steps it has had."""

    opened: int
    steps: int


@dataclass
class Schedule:
    """The schedule of a run of `steps` steps a block; blocks begun before go on where they stood.

    `begun` is by the first position of the block.
    """

    steps: int
    begun: Mapping[int, BlockProgress]

    def owed(self, left: np.ndarray, block: slice, step: int) -> np.ndarray:
        """Tokens [B] that this run's step `step` of a block owes; `left` [B] are masked still."""
        before = self.begun.get(block.start)
        if step == 0:
            self._opened = left if before is None else np.full_like(left, before.opened)
        return owed(self._opened, left, self.steps, self.place(block, step))

    def place(self, block: slice, step: int) -> int:
        """The number of a block's step in its whole schedule, a parent's steps included."""
        before = self.begun.get(block.start)
        return step + (before.steps if before else 0)


@dataclass
class DreamSchedule(Schedule):
    """Dream's schedule: of M masks a step reveals the share r = 1 - t(i+1) / t(i), rounded down.

    t falls evenly from 1 to `eps` (Dream, generation_utils.py); the last step owes all that is
    left. Rounding makes the first step of a block as long as its steps owe none, the last two.
    """

    eps: float

    def __post_init__(self) -> None:
        self._times = torch.linspace(1, self.eps, self.steps + 1).numpy()

    def share(self, place: int) -> np.float32:
        """The r of a step."""
        if place >= self.steps - 1:
            return np.float32(1)
        return np.float32(1 - self._times[place + 1] / self._times[place])

    def owed(self, left: np.ndarray, block: slice, step: int) -> np.ndarray:
        """Tokens [B] that step `step` of a block owes, M being those that are masked still."""
        share = self.share(self.place(block, step))
        return np.floor(left.astype(np.float32) * share).astype(np.int64)


def owed(opened: np.ndarray, left: np.ndarray, steps: int, step: int) -> np.ndarray:
    """Tokens [B] that step `step` (from 0) of a block owes.

    q_i = floor(M / s) + [i < M mod s] for M masks `opened` at the block's start and s `steps`, and
    what earlier steps did not find to commit; `left` [B] are masked still.
    """
    before = _through(opened, steps, step)
    behind = np.maximum(before - (opened - left), 0)
    return _through(opened, steps, step + 1) - before + behind


def _through(opened: np.ndarray, steps: int, count: int) -> np.ndarray:
    """The quotas of the first `count` steps together."""
    count = min(count, steps)
    return opened // steps * count + np.minimum(opened % steps, count)
