"""Recorder: what a run keeps beside its token events; the base class keeps nothing."""

from __future__ import annotations

import numpy as np
from torch import Tensor

from engine.cache.base import (
    CachePolicy,
    Ground,
    LayerPlan,
    LayerProbe,
    RunInfo,
    StepPlan,
    StepView,
)
from engine.cache.store import Site
from engine.decode.base import Candidates
from engine.events import SITES, Recording
from engine.models.ops import wide
from engine.rows import ALL, Rows, to_mask

TOP = 5


class Recorder:
    """Level `off`: no code in the forward, no code in the step."""

    def watch(self, policy: CachePolicy) -> CachePolicy:
        """The policy to run: itself, or one that is listened to."""
        return policy

    def extra_rows(self, view: StepView, plan: StepPlan) -> Tensor | None:
        """Hidden rows [B, m] of the plan whose raw logits are wanted beside those needed."""
        return None

    def see(self, view: StepView, extra: Tensor) -> None:
        """Take the raw logits [B, m, V] of `extra_rows`, before guidance."""

    def record(
        self, view: StepView, plan: StepPlan, logits: Tensor, candidates: Candidates
    ) -> Recording | None:
        """The step's recording; called outside the clocks."""
        return None


class StepRecorder(Recorder):
    """Level `steps`: each layer's plan, and the top candidates with their probabilities."""

    def __init__(self) -> None:
        self._plans: list[LayerPlan] = []

    def watch(self, policy: CachePolicy) -> CachePolicy:
        """The policy with its layer plans overheard."""
        return overhear(policy, self._plans)

    def record(
        self, view: StepView, plan: StepPlan, logits: Tensor, candidates: Candidates
    ) -> Recording:
        """Pack what the step did."""
        batch, length = view.canvas.shape
        bits = np.stack(
            [
                [_mask(plan.rows, getattr(p, site), batch, length) for site in SITES]
                for p in self._plans
            ]
        )
        self._plans.clear()
        real = view.real[0]
        probabilities = wide(logits[0, real]).softmax(-1)
        top = probabilities.topk(min(TOP, probabilities.shape[-1]), -1)
        return Recording(
            plan=np.packbits(bits, axis=-1),
            positions=view.needs[0, real].cpu().numpy().astype(np.int32),
            top_ids=top.indices.cpu().numpy().astype(np.int32),
            top_probs=top.values.float().cpu().numpy(),
        )


class _Overheard(CachePolicy):
    """A policy whose layer plans are noted; it decides nothing itself."""

    def __init__(self, inner: CachePolicy, plans: list[LayerPlan]) -> None:
        self._inner, self._plans = inner, plans

    @property
    def follows_order(self) -> bool:
        return self._inner.follows_order

    def prepare(self, ground: Ground) -> None:
        self._inner.prepare(ground)

    def sites(self, run: RunInfo) -> tuple[Site, ...]:
        return self._inner.sites(run)

    def watch(self, step: int, masked: np.ndarray, block: slice) -> np.ndarray | None:
        return self._inner.watch(step, masked, block)

    def start(self, run: RunInfo) -> None:
        self._inner.start(run)

    def guides(self, step: int) -> bool:
        return self._inner.guides(step)

    def begin_step(self, view: StepView) -> StepPlan:
        return self._inner.begin_step(view)

    def plan(self, layer: int, probe: LayerProbe) -> LayerPlan:
        plan = self._inner.plan(layer, probe)
        self._plans.append(plan)
        return plan

    def end_step(self, view: StepView, confidence: Tensor, committed: Tensor) -> None:
        self._inner.end_step(view, confidence, committed)

    @classmethod
    def exact(cls) -> CachePolicy:
        raise NotImplementedError


def overhear(policy: CachePolicy, plans: list[LayerPlan]) -> CachePolicy:
    """The policy, with every layer plan that it makes appended to `plans`."""
    return _Overheard(policy, plans)


def _mask(active: Rows, rows: Rows, batch: int, length: int) -> np.ndarray:
    return to_mask(active if rows is ALL else rows, batch, length)[0].numpy()


def make_recorder(level: str) -> Recorder:
    """The recorder of a level, `off` or `steps`."""
    return StepRecorder() if level == "steps" else Recorder()
