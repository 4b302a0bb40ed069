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
    """Commits the candidates with the highest scores, as many as the schedule requires.

    A random order is drawn once a block, which has the same distribution as a new draw in every
    step. A branch draws that of a half-decoded block again.
    """

    name = "quota"
    title = "Quota"
    paper = "arXiv 2502.09992"
    summary = "A fixed number of tokens a step, the most confident first."
    scheduled = True

    score: str = knob(
        "confidence",
        choices=("confidence", "margin", "entropy", "random"),
        label="Score",
        help="What proposed tokens are ranked by. confidence: their probability (LLaDA's "
        "low_confidence); margin: its lead over the second most probable token; entropy: the least "
        "comes first; random: the order is drawn.",
    )

    @property
    def has_planned_order(self) -> bool:
        """True for a random order, which does not depend on the logits."""
        return self.score == "random"

    @property
    def ranks_by_score(self) -> bool:
        """False for a random order."""
        return not self.has_planned_order

    def planned_order(
        self,
        masked: np.ndarray,
        block: slice,
        block_step: int,
        noise: Sequence[torch.Generator],
        eligible: np.ndarray | None = None,
    ) -> tuple[np.ndarray, ...] | None:
        """The positions due in this step, in descending order of their random numbers."""
        if not self.has_planned_order:
            return None
        assert self.block_schedule is not None
        if block_step == 0:
            self._numbers = self.draw_order(block, noise)
        free = masked if eligible is None else eligible
        ranked = np.where(free[:, block], -self._numbers, np.inf).argsort(1, kind="stable")
        due = self.block_schedule.tokens_due(masked.sum(1), block, block_step)
        counts = np.minimum(due, free.sum(1))
        return tuple(
            block.start + places[:count] for places, count in zip(ranked, counts, strict=True)
        )

    def draw_order(self, block: slice, noise: Sequence[torch.Generator]) -> np.ndarray:
        """Uniform numbers [B, n] for every position of a block, in position order."""
        size = block.stop - block.start
        return np.stack([torch.rand(size, dtype=torch.float64, generator=g) for g in noise])

    def commit(self, candidates: Candidates, view: StepView) -> Commit:
        """Commit the planned positions, or the candidates with the highest scores."""
        if view.order_mask is not None:
            mask = upload(view.order_mask, view.needs.device).gather(1, view.needs)
            return Commit(mask & view.real, candidates.ids)
        return self.commit_scheduled(candidates, view)
