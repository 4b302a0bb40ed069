"""Threshold: Fast-dLLM's confidence-aware parallel decoding (arXiv 2505.22618, section 3.3)."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from engine.cache.base import StepView
from engine.config.knobs import knob
from engine.unmask.base import Candidates, Commit, Unmasker


@dataclass
class Threshold(Unmasker):
    """Commits every candidate at or above the threshold, and always the best one."""

    name = "threshold"
    title = "Threshold"
    paper = "arXiv 2505.22618"
    summary = "All tokens that reach a probability threshold, and always the most probable one."

    threshold: float = knob(
        0.9, 0.0, 2.0, label="Threshold",
        help="Least probability at which a token is committed; above 1, one token a step.",
    )  # fmt: skip

    def commit(self, candidates: Candidates, view: StepView) -> Commit:
        """Commit candidates with confidence >= threshold, or the first in rank."""
        best = candidates.top(torch.ones_like(view.real[:, 0], dtype=torch.long))
        return Commit(best | (candidates.score >= self.threshold), candidates.ids)
