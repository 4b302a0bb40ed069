"""Recorder: what a run keeps beside its token events; the base class keeps nothing."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
from torch import Tensor

from engine.cache.base import (
    CachePolicy,
    LayerPlan,
    LayerProbe,
    PolicyContext,
    RunInfo,
    StepPlan,
    StepView,
)
from engine.cache.forward import UnreadRows
from engine.cache.store import ActivationStore, Site
from engine.core.events import KINDS, SITES, Recording, Similarity
from engine.core.rows import ALL, Rows, to_mask
from engine.models.base import ModelAdapter
from engine.models.ops import wide
from engine.unmask.base import Candidates

TOP = 5


class Recorder:
    """Level `off`: no code in the forward, no code in the step.

    `unread` says what is to become of rows that nothing but the recorder asks for, `listens` that
    it follows the forward and looks at each step before the next.
    """

    unread: ClassVar[UnreadRows] = "drop"
    listens: ClassVar[bool] = False

    def wrap_policy(self, policy: CachePolicy) -> CachePolicy:
        """The policy to run: itself, or one that is listened to."""
        return policy

    def wrap_adapter(self, adapter: ModelAdapter, store: ActivationStore) -> ModelAdapter:
        """The adapter to run the first branch with, `store` beside it: itself, or a tapped one."""
        return adapter

    def begin(self, view: StepView) -> None:
        """Called before the step's forward, inside the clocks."""

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

    def finish(self) -> Similarity | None:
        """What was gathered over the run, once it has ended; all that was held is let go."""
        return None


class StepRecorder(Recorder):
    """Level `steps`: each layer's plan, and the top candidates with their probabilities."""

    listens = True

    def __init__(self) -> None:
        self._plans: list[LayerPlan] = []
        self._policy: CachePolicy | None = None

    def wrap_policy(self, policy: CachePolicy) -> CachePolicy:
        """The policy with its layer plans overheard."""
        self._policy = policy
        return listen_to_plans(policy, self._plans)

    def begin(self, view: StepView) -> None:
        """Forget the plans of the step before."""
        self._plans.clear()

    def record(
        self, view: StepView, plan: StepPlan, logits: Tensor, candidates: Candidates
    ) -> Recording:
        """Pack what the step did."""
        real = view.real[0]
        probabilities = wide(logits[0, real]).softmax(-1)
        top = probabilities.topk(min(TOP, probabilities.shape[-1]), -1)
        return Recording(
            plan=self._bits(view, plan),
            positions=view.needs[0, real].cpu().numpy().astype(np.int32),
            top_ids=top.indices.cpu().numpy().astype(np.int32),
            top_probs=top.values.float().cpu().numpy(),
            planned=self._planned(view),
        )

    def finish(self) -> Similarity | None:
        """Let the policy go."""
        self._plans.clear()
        self._policy = None
        return None

    def rows(self, plan: StepPlan, layer: int, site: str) -> Rows:
        """Global rows of sequence 0 that a layer recomputed of a site in the step."""
        chosen = self._plans[layer]
        if chosen.idle is not None and bool(chosen.idle[0]):
            return slice(0, 0)
        rows = getattr(chosen, site)
        return plan.rows if rows is ALL else rows

    def _bits(self, view: StepView, plan: StepPlan) -> np.ndarray:
        batch, length = view.canvas.shape
        masks: dict[int, np.ndarray] = {}
        chosen = [[self.rows(plan, layer, s) for s in SITES] for layer in range(len(self._plans))]
        for rows in (rows for row in chosen for rows in row):
            if id(rows) not in masks:
                masks[id(rows)] = np.packbits(to_mask(rows, batch, length)[0].numpy())
        return np.array([[masks[id(rows)] for rows in row] for row in chosen])

    def _planned(self, view: StepView) -> np.ndarray:
        assert self._policy is not None, "the policy is watched before the first step"
        kinds = self._policy.planned(view)
        known = zip(kinds, view.regions, strict=True)
        return np.array([KINDS.index(k if area.any() else "full") for k, area in known], np.uint8)


class _PlanListener(CachePolicy):
    """A policy whose layer plans are noted; it decides nothing itself."""

    def __init__(self, inner: CachePolicy, plans: list[LayerPlan]) -> None:
        self._inner, self._plans = inner, plans

    @property
    def follows_order(self) -> bool:
        return self._inner.follows_order

    def prepare(self, context: PolicyContext) -> None:
        self._inner.prepare(context)

    def sites(self, run: RunInfo) -> tuple[Site, ...]:
        return self._inner.sites(run)

    def confidence_mask(self, step: int, masked: np.ndarray, block: slice) -> np.ndarray | None:
        return self._inner.confidence_mask(step, masked, block)

    def start(self, run: RunInfo) -> None:
        self._inner.start(run)

    def logits_end(self, masked: np.ndarray, block: slice) -> np.ndarray:
        return self._inner.logits_end(masked, block)

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

    def planned(self, view: StepView) -> tuple[str, str, str]:
        return self._inner.planned(view)

    def facts(self) -> dict[str, list[float]]:
        return self._inner.facts()

    @classmethod
    def exact(cls) -> CachePolicy:
        raise NotImplementedError


def listen_to_plans(policy: CachePolicy, plans: list[LayerPlan]) -> CachePolicy:
    """The policy, with every layer plan that it makes appended to `plans`."""
    return _PlanListener(policy, plans)
