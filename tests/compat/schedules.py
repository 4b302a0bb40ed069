"""Schedules of the releases: Dream's carried budget, and dllm's rounded counts."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from engine.cache.base import RunInfo, StepView
from engine.core.device import upload
from engine.unmask.base import Candidates, Commit
from engine.unmask.methods.quota import Quota
from engine.unmask.schedule import BlockProgress, Schedule
from tests.compat.samplers import FilteredThreshold, TopkOrder


class CarriedBudget(TopkOrder, FilteredThreshold):
    """Fast-dLLM's uncached sampler for Dream: a threshold, and a budget of tokens for each step.

    A step may commit as many tokens as its even share and what earlier steps left of theirs.
    Steps are added until no mask is left.
    """

    scheduled = True

    def commit(self, candidates: Candidates, view: StepView) -> Commit:
        """Commit the first in rank, and others within the budget and above the threshold."""
        assert self.block_schedule is not None
        due = self.block_schedule.tokens_due(view.left, view.block, view.block_step)
        share = self.ranked(candidates, view).top(upload(due, view.real.device))
        return Commit(super().commit(candidates, view).mask & share, candidates.ids)


def rounded_counts(masks: int, steps: int) -> list[int]:
    """The tokens that dllm commits in each call of a block, without calls that commit none.

    A step takes the share 1 - s / t of the masks left, t and s its times in float32, rounded to
    the nearest, halves to even.
    """
    counts, one = [], np.float32(1)
    for step in range(steps, 0, -1):
        before, after = (one - (one - np.float32(n / steps)) for n in (step, step - 1))
        counts.append(round(masks * (1 - float(after / before))))
        masks -= counts[-1]
    return [count for count in counts if count]


class RoundedSchedule(Schedule):
    """A schedule by `rounded_counts`."""

    def tokens_due(self, left: np.ndarray, block: slice, step: int) -> np.ndarray:
        """Tokens [B] to commit in step `step` of a block."""
        return np.full_like(left, rounded_counts(block.stop - block.start, self.steps)[step])


class RoundedQuota(Quota):
    """A quota with dllm's schedule."""

    def start(
        self,
        run: RunInfo,
        steps_per_block: int | None,
        progress: Mapping[int, BlockProgress] | None = None,
    ) -> None:
        """Use the rounded schedule."""
        super().start(run, steps_per_block, progress)
        assert steps_per_block is not None
        self.block_schedule = RoundedSchedule(steps_per_block, {})
