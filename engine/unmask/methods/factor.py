"""Factor: Fast-dLLM's adaptive rule from its Theorem 1 (arXiv 2505.22618, section 3.3)."""

from __future__ import annotations

from dataclasses import dataclass

from engine.cache.base import StepView
from engine.config.knobs import knob
from engine.unmask.base import Candidates, Commit, Unmasker, leading_run


@dataclass
class Factor(Unmasker):
    """The k surest candidates for the largest k with (k + 1)(1 - c_k) < factor, at least one."""

    name = "factor"
    title = "Factor"
    paper = "arXiv 2505.22618"
    summary = "As many tokens as their confidences allow together; 1 is the theorem's bound."

    factor: float = knob(1.0, 0.0, 100.0, label="Factor", help="Larger commits more.")

    def commit(self, candidates: Candidates, view: StepView) -> Commit:
        """The prefix of the confidence order that passes."""
        return leading_run(candidates, lambda rank, doubt: (rank + 1) * doubt < self.factor)
