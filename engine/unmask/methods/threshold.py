"""Threshold: Fast-dLLM's confidence-aware parallel decoding (arXiv 2505.22618, section 3.3)."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from engine.cache.base import StepView
from engine.config.knobs import knob
from engine.unmask.base import Candidates, Commit, Unmasker


@dataclass
class Threshold(Unmasker):
    """Every candidate at or above the threshold, and always the best one."""

    name = "threshold"
    title = "Threshold"
    paper = "arXiv 2505.22618"
    summary = "All tokens at least this sure, and always the surest."

    threshold: float = knob(
        0.9, 0.0, 2.0, label="Threshold", help="Least probability; above 1: one token a step."
    )

    def commit(self, candidates: Candidates, view: StepView) -> Commit:
        """Confidence >= threshold, or first in rank."""
        best = candidates.leading(torch.ones_like(view.real[:, 0], dtype=torch.long))
        return Commit(best | (candidates.score >= self.threshold), candidates.ids)
