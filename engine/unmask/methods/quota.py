"""Quota: LLaDA's schedule, a fixed number of tokens in each step (arXiv 2502.09992)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from engine.cache.base import StepView
from engine.config.knobs import knob
from engine.core.device import upload
from engine.unmask.base import Candidates, Commit, Unmasker


@dataclass
class Quota(Unmasker):
    """The best candidates by score, as many as the step owes.

    A random order is drawn once a block, which is the law of a fresh draw in every step; a branch
    draws that of a half-decoded block anew.
    """

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

    @property
    def known_order(self) -> bool:
        """A random order owes nothing to the logits."""
        return self.score == "random"

    def order(
        self,
        masked: np.ndarray,
        block: slice,
        block_step: int,
        noise: Sequence[torch.Generator],
        eligible: np.ndarray | None = None,
    ) -> tuple[np.ndarray, ...] | None:
        """The positions owed now, by falling random number; ties go to the lower position."""
        if not self.known_order:
            return None
        assert self.pace is not None
        if block_step == 0:
            self._numbers = self.draw(block, noise)
        free = masked if eligible is None else eligible
        ranked = np.where(free[:, block], -self._numbers, np.inf).argsort(1, kind="stable")
        due = self.pace.owed(masked.sum(1), block, block_step)
        counts = np.minimum(due, free.sum(1))
        return tuple(
            block.start + places[:count] for places, count in zip(ranked, counts, strict=True)
        )

    def draw(self, block: slice, noise: Sequence[torch.Generator]) -> np.ndarray:
        """A uniform number for every position of a block, [B, n], in position order."""
        size = block.stop - block.start
        return np.stack([torch.rand(size, dtype=torch.float64, generator=g) for g in noise])

    def commit(self, candidates: Candidates, view: StepView) -> Commit:
        """The best, as many as the step owes and may be committed."""
        if view.due is not None:
            mask = upload(view.due, view.needs.device).gather(1, view.needs)
            return Commit(mask & view.real, candidates.ids)
        return self.commit_owed(candidates, view)
