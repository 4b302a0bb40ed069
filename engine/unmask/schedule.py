"""Schedules: how many tokens each step of a block commits (LLaDA, arXiv 2502.09992)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch


class BlockProgress(NamedTuple):
    """How far a block was decoded: its masks at the start and its steps so far.

    A block that the prompt shares counts as one whose first tokens are decoded already, so that
    its steps commit as many tokens as those of other blocks (SDAR, generate.py).
    """

    initial_masks: int
    steps_done: int


@dataclass
class Schedule:
    """The even schedule of a run with `steps` steps a block.

    `progress` maps the first position of a block to what was done there; the schedule of such a
    block continues.
    """

    steps: int
    progress: Mapping[int, BlockProgress]

    def tokens_due(self, left: np.ndarray, block: slice, step: int) -> np.ndarray:
        """Tokens [B] to commit in this run's step `step` of a block; `left` [B] are its masks."""
        before = self.progress.get(block.start)
        if step == 0:
            masks = left if before is None else np.full_like(left, before.initial_masks)
            self._initial_masks = masks
        return even_tokens_due(self._initial_masks, left, self.steps, self.step_number(block, step))

    def step_number(self, block: slice, step: int) -> int:
        """The number of a step in the block's whole schedule, the parent's steps included."""
        before = self.progress.get(block.start)
        return step + (before.steps_done if before else 0)


@dataclass
class DreamSchedule(Schedule):
    """Dream's schedule: step i reveals the fraction r = 1 - t(i+1) / t(i) of M masks, rounded down.

    t falls linearly from 1 to `eps` (Dream, generation_utils.py); the last step reveals the rest.
    If a block has as many steps as masks, rounding leaves none to the first step and two to the
    last; three from 1 / `eps` masks on.
    """

    eps: float

    def __post_init__(self) -> None:
        self._times = torch.linspace(1, self.eps, self.steps + 1).numpy()

    def reveal_fraction(self, step_number: int) -> np.float32:
        """The fraction r of a step."""
        if step_number >= self.steps - 1:
            return np.float32(1)
        return np.float32(1 - self._times[step_number + 1] / self._times[step_number])

    def tokens_due(self, left: np.ndarray, block: slice, step: int) -> np.ndarray:
        """Tokens [B] to commit in step `step` of a block; M are its remaining masks `left` [B]."""
        fraction = self.reveal_fraction(self.step_number(block, step))
        return np.floor(left.astype(np.float32) * fraction).astype(np.int64)


def even_tokens_due(
    initial_masks: np.ndarray, left: np.ndarray, steps: int, step: int
) -> np.ndarray:
    """Tokens [B] to commit in step `step` (from 0) of a block.

    The quota is q_i = floor(M / s) + [i < M mod s] for M `initial_masks` and s `steps`, plus what
    earlier steps left uncommitted; `left` [B] are the remaining masks.
    """
    each, more = np.divmod(initial_masks, steps)
    done, due = min(step, steps), min(step + 1, steps)
    before = each * done + np.minimum(more, done)  # the sum of the quotas of earlier steps
    now = each * due + np.minimum(more, due) - before
    behind = np.maximum(before - initial_masks + left, 0)
    total: np.ndarray = now + behind
    return total
