"""Dynamic: SDAR's rule, all tokens above a threshold and at least the step's quota."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch

from engine.cache.base import StepView
from engine.config.knobs import knob
from engine.core.device import upload
from engine.unmask.base import Candidates, Commit, SamplingParams, Unmasker


@dataclass
class Dynamic(Unmasker):
    """Commits every candidate above the threshold, or the best ones up to the step's quota.

    It never takes more steps than `quota`, which it equals at temperature 0 from threshold 1 on.
    The confidence is that of the tempered and filtered distribution (SDAR, generate.py,
    low_confidence_dynamic).
    """

    name = "dynamic"
    title = "Dynamic threshold"
    paper = "arXiv 2510.06303"
    summary = (
        "All tokens above a probability threshold, and at least as many as the schedule requires."
    )
    scheduled = True

    threshold: float = knob(
        0.9, -1.0, 2.0, label="Threshold",
        help="Probability that a token has to exceed; from 1 on only the schedule counts.",
    )  # fmt: skip
    top_k: int = knob(
        0, 0, 1000, label="Top k", help="Propose one of this many most probable tokens; 0: any."
    )
    top_p: float = knob(
        1.0, 0.0, 1.0, label="Top p",
        help="Propose one of the most probable tokens, up to this sum; 1: any.",
    )  # fmt: skip

    @property
    def sampling_params(self) -> SamplingParams:
        """Temper each distribution and filter it, by `top_k` first."""
        return SamplingParams(self.top_p, self.top_k, top_k_first=True)

    @property
    def confidence_decides(self) -> bool:
        """True: the schedule is only the least."""
        return True

    def planned_counts(self, masked: int, steps: int) -> tuple[int, ...] | None:
        """None: confidence decides."""
        return None

    def commit(self, candidates: Candidates, view: StepView) -> Commit:
        """Commit all above the threshold if they are at least as many as are due, else the best."""
        assert self.block_schedule is not None, "a scheduled rule has a schedule"
        due = self.block_schedule.tokens_due(view.left, view.block, view.block_step)
        least = upload(np.minimum(due, view.real_host.sum(1)), candidates.ids.device)
        above = (candidates.score > self.threshold).sum(1)
        return Commit(candidates.top(torch.maximum(above, least)), candidates.ids)
