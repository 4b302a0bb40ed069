"""Dream: the rules of Dream's sampler `diffusion_generate` (arXiv 2508.15487)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch

from engine.cache.base import RunInfo, StepView
from engine.config.knobs import knob
from engine.unmask.base import Shaping
from engine.unmask.methods.quota import Quota
from engine.unmask.schedule import BlockProgress, DreamSchedule

SCORES = {
    "entropy": "entropy",
    "maskgit_plus": "confidence",
    "topk_margin": "margin",
    "origin": "random",
}


@dataclass
class Dream(Quota):
    """The best by one of Dream's measures, taken after tempering and filtering; or by chance.

    `origin` reveals each masked position by itself with the probability r of the step; the others
    take the best of M masks. Corrected, r is 1 / (steps left) and the counts are those of `quota`;
    as released, they are floor(M r) with r = 1 - t(i+1) / t(i), t even from 1 to `eps`, and all
    that is left in the last step. M is a sequence's own; the release takes a batch's mean.
    """

    name = "dream"
    title = "Dream"
    paper = "arXiv 2508.15487"
    summary = "A fixed number of tokens a step, the best by one of Dream's measures, or by chance."

    score: str = "entropy"
    alg: str = knob(
        "entropy",
        choices=tuple(SCORES),
        label="Measure",
        help="What candidates are ranked by; origin reveals at random.",
    )
    top_p: float = knob(
        1.0, 0.0, 1.0, label="Top p", help="Keep the likeliest tokens up to this sum; 1: all."
    )
    top_k: int = knob(0, 0, 1000, label="Top k", help="Keep so many of the likeliest; 0: all.")
    alg_temp: float = knob(
        0.0, 0.0, 100.0, label="Order temperature", help="Above 0 the order is drawn by measure."
    )
    schedule: str = knob(
        "corrected",
        choices=("corrected", "released"),
        label="Schedule",
        help="released rounds down as Dream's code does: its first steps may reveal nothing.",
    )
    eps: float = knob(
        0.001, 1e-6, 0.5, label="Eps", help="Released schedule only: the time it falls to."
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        self.score = SCORES[self.alg]

    @property
    def known_order(self) -> bool:
        """Never: chance may reveal nothing in a step, and a foretold step reveals something."""
        return False

    @property
    def shaping(self) -> Shaping:
        """Confidence is that of the tempered and filtered distribution."""
        return Shaping(self.top_p, self.top_k, self.alg_temp)

    def start(
        self,
        run: RunInfo,
        steps_per_block: int | None,
        begun: Mapping[int, BlockProgress] | None = None,
    ) -> None:
        """Dream's own schedule where it is asked for; chance takes its shares, from t = 0."""
        super().start(run, steps_per_block, begun)
        assert steps_per_block is not None
        if self._uneven:
            eps = self.eps if self.schedule == "released" else 0.0
            self.pace = DreamSchedule(steps_per_block, begun or {}, eps)

    def order(
        self,
        masked: np.ndarray,
        block: slice,
        block_step: int,
        noise: Sequence[torch.Generator],
        eligible: np.ndarray | None = None,
    ) -> tuple[np.ndarray, ...] | None:
        """What chance reveals now; a number is drawn for every open position, in their order."""
        if self.alg != "origin":
            return None
        assert isinstance(self.pace, DreamSchedule)
        share = float(self.pace.share(self.pace.place(block, block_step)))
        found = []
        for row, generator, free in zip(
            masked, noise, masked if eligible is None else eligible, strict=True
        ):
            places = np.flatnonzero(row)
            numbers = torch.rand(len(places), dtype=torch.float64, generator=generator).numpy()
            places = places[numbers < share]
            found.append(places[free[places]])
        return tuple(found)

    def may_skip(self, view: StepView) -> bool:
        """Until its last step, where the shares are Dream's."""
        assert self.pace is not None
        left = self.pace.steps - self.pace.place(view.block, view.block_step)
        return self._uneven and left > 1

    def shares(self, masked: int, steps: int) -> tuple[int, ...] | None:
        """By the schedule; None where chance decides."""
        if self.alg == "origin":
            return None
        if self.schedule == "corrected":
            return super().shares(masked, steps)
        falling, left, found = DreamSchedule(steps, {}, self.eps), masked, []
        for step in range(steps):
            found.append(int(falling.owed(np.array([left]), slice(0, masked), step)[0]))
            left -= found[-1]
        return tuple(found)

    @property
    def _uneven(self) -> bool:
        return self.alg == "origin" or self.schedule == "released"
