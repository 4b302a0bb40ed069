"""Sequential: the leftmost masked positions of a block, as many as the schedule requires."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch

from engine.cache.base import StepView
from engine.unmask.base import Candidates, Commit, Unmasker


@dataclass
class Sequential(Unmasker):
    """Commits from left to right, whatever the confidence (SDAR, generate.py, sequential)."""

    name = "sequential"
    title = "Sequential"
    paper = "arXiv 2510.06303"
    summary = "A fixed number of tokens a step, from left to right."
    scheduled = True

    @property
    def ranks_by_score(self) -> bool:
        """False."""
        return False

    def commit(self, candidates: Candidates, view: StepView) -> Commit:
        """Commit the first candidates, as many as the schedule requires."""
        score = (-view.needs.double()).masked_fill(~view.real, -torch.inf)
        return self.commit_scheduled(replace(candidates, score=score), view)
