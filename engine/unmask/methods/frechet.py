"""Frechet: a sharper sufficient condition than the factor rule, from the same proof."""

from __future__ import annotations

from dataclasses import dataclass

from engine.cache.base import StepView
from engine.unmask.base import Candidates, Commit, Unmasker, leading_run


@dataclass
class Frechet(Unmasker):
    """The largest k with sum over j <= k of (1 - c_j), plus 1 - c_k, below 1; at least one."""

    name = "frechet"
    title = "Fréchet bound"
    summary = "As many tokens as the Fréchet bound on their joint probability guarantees."

    def commit(self, candidates: Candidates, view: StepView) -> Commit:
        """The prefix of the confidence order that passes."""
        return leading_run(candidates, lambda _, doubt: doubt.cumsum(1) + doubt < 1)
