"""Schedules of the releases: Dream's carried budget."""

from __future__ import annotations

from engine.cache.base import StepView
from engine.core.device import upload
from engine.unmask.base import Candidates, Commit
from engine.unmask.methods.threshold import Threshold


class CarriedBudget(Threshold):
    """Fast-dLLM's uncached sampler for Dream: a threshold, and a budget of tokens for each step.

    A step may commit as many tokens as its even share and what earlier steps left of theirs.
    Steps are added until no mask is left.
    """

    scheduled = True

    def commit(self, candidates: Candidates, view: StepView) -> Commit:
        """Commit the first in rank, and others within the budget and above the threshold."""
        assert self.block_schedule is not None
        due = self.block_schedule.tokens_due(view.left, view.block, view.block_step)
        mask = super().commit(candidates, view).mask & candidates.top(upload(due, view.real.device))
        return Commit(mask, candidates.ids)
