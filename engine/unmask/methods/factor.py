"""Factor: Fast-dLLM's adaptive rule from its Theorem 1 (arXiv 2505.22618, section 3.3)."""

from __future__ import annotations

from dataclasses import dataclass

from engine.cache.base import StepView
from engine.config.knobs import knob
from engine.unmask.base import Candidates, Commit, Unmasker, commit_passing_prefix


@dataclass
class Factor(Unmasker):
    """Commits the k best candidates, k the largest with (k + 1)(1 - c_k) < factor, at least 1."""

    name = "factor"
    title = "Factor"
    paper = "arXiv 2505.22618"
    summary = (
        "As many tokens as their confidences allow together; factor 1 is the bound of Fast-dLLM's "
        "Theorem 1."
    )

    factor: float = knob(
        1.0, 0.0, 100.0, label="Factor",
        help="Larger values commit more tokens; above 1, Fast-dLLM's theorem guarantees nothing.",
    )  # fmt: skip

    def commit(self, candidates: Candidates, view: StepView) -> Commit:
        """Commit the prefix of the confidence ranking that passes."""
        return commit_passing_prefix(candidates, lambda rank, gap: (rank + 1) * gap < self.factor)
