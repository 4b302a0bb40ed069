"""Dream: the rules of Dream's sampler `diffusion_generate` (arXiv 2508.15487)."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch

from engine.cache.base import RunInfo, StepView
from engine.config.knobs import knob
from engine.unmask.base import SamplingParams
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
    """Ranks candidates by one of Dream's measures after tempering and filtering, or at random.

    `alg` origin reveals each masked position independently with the probability r of the step; the
    other measures take the best of M masks. With the corrected schedule, r is 1 / (steps left) and
    the counts are those of `quota`. As released, the counts are floor(M r) with r = 1 - t(i+1) /
    t(i), t linear from 1 to `eps`, and the last step takes the rest. M counts one sequence's masks;
    the release uses the mean of the batch.
    """

    name = "dream"
    title = "Dream"
    paper = "arXiv 2508.15487"
    summary = (
        "A fixed number of tokens a step, the best by one of Dream's measures, or random ones."
    )

    score: str = "entropy"
    alg: str = knob(
        "entropy",
        choices=tuple(SCORES),
        label="Measure (alg)",
        help="What proposed tokens are ranked by. entropy: the least comes first; maskgit_plus: "
        "their probability; topk_margin: its lead over the second most probable token; origin: "
        "nothing, each is committed or not at random.",
    )
    top_p: float = knob(
        1.0, 0.0, 1.0, label="Top p",
        help="Propose one of the most probable tokens, up to this sum; 1: any.",
    )  # fmt: skip
    top_k: int = knob(
        0, 0, 1000, label="Top k", help="Propose one of this many most probable tokens; 0: any."
    )
    alg_temp: float = knob(
        0.0, 0.0, 100.0, label="Order temperature",
        help="Above 0, the order is drawn at random, the more so the higher it is.",
    )  # fmt: skip
    schedule: str = knob(
        "corrected",
        choices=("corrected", "released"),
        label="Schedule",
        help="corrected: the masks divided evenly among the steps; released: rounded down as in "
        "Dream's code, so the first steps may commit nothing.",
    )
    eps: float = knob(
        0.001,
        1e-6,
        0.5,
        label="Final time (eps)",
        help="Last value of the diffusion time t, which falls from 1; the released schedule and "
        "the padding penalty use it.",
    )
    padding_penalty: float = knob(
        0.0,
        0.0,
        10.0,
        label="Padding penalty",
        help="Dream-Coder's: lowers the padding token's logit, most in the first step; 0: off.",
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        self.score = SCORES[self.alg]

    @property
    def has_planned_order(self) -> bool:
        """False: a step of origin may reveal no position."""
        return False

    @property
    def ranks_by_score(self) -> bool:
        """False for origin, which reveals positions at random."""
        return self.alg != "origin"

    @property
    def sampling_params(self) -> SamplingParams:
        """Temper and filter each distribution before confidence is measured."""
        return SamplingParams(self.top_p, self.top_k, self.alg_temp)

    def start(
        self,
        run: RunInfo,
        steps_per_block: int | None,
        progress: Mapping[int, BlockProgress] | None = None,
    ) -> None:
        """Use Dream's schedule if released, and for origin (with eps 0 if corrected)."""
        super().start(run, steps_per_block, progress)
        assert steps_per_block is not None
        if self._uses_dream_schedule:
            eps = self.eps if self.schedule == "released" else 0.0
            self.block_schedule = DreamSchedule(steps_per_block, progress or {}, eps)

    def logit_offsets(self, view: StepView) -> Mapping[int, float]:
        """The padding token's penalty p log(1 - t + eps), t falling from 1 over the whole answer.

        Dream-Coder (arXiv 2509.01142): -6.9 p in the first step at eps 0.001, about 0 in the last.
        With several blocks, t counts the steps of all of them.
        """
        if not self.padding_penalty:
            return {}
        schedule, run = self.block_schedule, view.run
        assert schedule is not None, "Dream has a schedule"
        step = view.block_index * schedule.steps
        step += schedule.step_number(view.block, view.block_step)
        elapsed = min(step / (schedule.steps * len(run.grid)), 1.0)  # a cache may limit steps
        offset = self.padding_penalty * math.log((1 - self.eps) * elapsed + self.eps)
        return {run.info.fill_id: offset}

    def planned_order(
        self,
        masked: np.ndarray,
        block: slice,
        block_step: int,
        noise: Sequence[torch.Generator],
        eligible: np.ndarray | None = None,
    ) -> tuple[np.ndarray, ...] | None:
        """The positions that origin reveals: one random number for every masked position."""
        if self.alg != "origin":
            return None
        schedule = self.block_schedule
        assert isinstance(schedule, DreamSchedule)
        fraction = float(schedule.reveal_fraction(schedule.step_number(block, block_step)))
        order = []
        for row, generator, free in zip(
            masked, noise, masked if eligible is None else eligible, strict=True
        ):
            places = np.flatnonzero(row)
            numbers = torch.rand(len(places), dtype=torch.float64, generator=generator).numpy()
            places = places[numbers < fraction]
            order.append(places[free[places]])
        return tuple(order)

    def may_commit_nothing(self, view: StepView) -> bool:
        """True before the last step if Dream's fractions are used."""
        schedule = self.block_schedule
        assert schedule is not None
        steps_left = schedule.steps - schedule.step_number(view.block, view.block_step)
        return self._uses_dream_schedule and steps_left > 1

    def planned_counts(self, masked: int, steps: int) -> tuple[int, ...] | None:
        """Tokens of each step by the schedule; None for origin."""
        if self.alg == "origin":
            return None
        if self.schedule == "corrected":
            return super().planned_counts(masked, steps)
        schedule, left, counts = DreamSchedule(steps, {}, self.eps), masked, []
        for step in range(steps):
            counts.append(int(schedule.tokens_due(np.array([left]), slice(0, masked), step)[0]))
            left -= counts[-1]
        return tuple(counts)

    @property
    def _uses_dream_schedule(self) -> bool:
        return self.alg == "origin" or self.schedule == "released"
