"""Quota: LLaDA's schedule, a fixed number of tokens in each step (arXiv 2502.09992)."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from engine.cache.base import StepView
from engine.decode.base import Candidates, Commit, Unmasker
from engine.fields import knob


@dataclass
class Quota(Unmasker):
    """The best candidates by score, as many as the step owes."""

    name = "quota"
    title = "Quota"
    paper = "arXiv 2502.09992"
    summary = "A fixed number of tokens a step, the surest first."
    scheduled = True

    score: str = knob(
        "confidence",
        choices=("confidence", "margin", "entropy", "random"),
        label="Score",
        help="What candidates are ranked by; confidence is LLaDA's low_confidence.",
    )

    def commit(self, candidates: Candidates, view: StepView) -> Commit:
        """q_i = floor(M / s) + [i < M mod s] for M masks at the block's start and s steps."""
        assert self.steps_per_block is not None
        if view.block_step == 0:
            self._masks = view.real.sum(1)
        owed, extra = self._masks // self.steps_per_block, self._masks % self.steps_per_block
        counts = owed + (view.block_step < extra)
        left = view.real.any(1) & (view.block_step < self.steps_per_block)
        return Commit(candidates.leading(torch.where(left, counts, 0)), candidates.ids)
