"""Frechet: a sharper sufficient condition than the factor rule, from the same proof."""

from __future__ import annotations

from dataclasses import dataclass

from engine.cache.base import StepView
from engine.unmask.base import Candidates, Commit, Unmasker, commit_passing_prefix


@dataclass
class Frechet(Unmasker):
    """Commits the k best candidates, k the largest with sum(1 - c_j, j <= k) + 1 - c_k < 1."""

    name = "frechet"
    title = "Fréchet bound"
    summary = "As many tokens as are the most probable ones together, by the Fréchet bound."

    def commit(self, candidates: Candidates, view: StepView) -> Commit:
        """Commit the prefix of the confidence ranking that passes."""
        return commit_passing_prefix(candidates, lambda _, gap: gap.cumsum(1) + gap < 1)
