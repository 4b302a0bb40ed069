"""Recorder, the base of the recording levels, and StepRecorder, level `steps`."""

from __future__ import annotations

from typing import Any, ClassVar, cast

import numpy as np
from torch import Tensor

from engine.cache.base import CachePolicy, LayerPlan, LayerProbe, Speedups, StepPlan, StepView
from engine.cache.forward import UnreadRows
from engine.cache.store import ActivationStore
from engine.core.events import KINDS, SITES, Recording, Similarity
from engine.core.rows import ALL, Rows, to_mask
from engine.models.base import ModelAdapter
from engine.models.ops import upcast
from engine.unmask.base import Candidates

TOP_CANDIDATES = 5


class Recorder:
    """Records data beside the events of a run; this base class, level `off`, records nothing.

    Attributes:
        unread: what the forward does with rows that only the recorder reads.
        reads_tensors: whether it reads tensors of each step before the next, which rules out
            captured forwards and steps that run ahead.
    """

    unread: ClassVar[UnreadRows] = "drop"
    reads_tensors: ClassVar[bool] = False

    def wrap_policy(self, policy: CachePolicy) -> CachePolicy:
        """The policy to run: `policy`, or a proxy that observes it."""
        return policy

    def wrap_adapter(self, adapter: ModelAdapter, store: ActivationStore) -> ModelAdapter:
        """The adapter of the first branch, whose store is `store`: `adapter`, or one with hooks."""
        return adapter

    def begin(self, view: StepView) -> None:
        """Prepare for a step; called before its forward, within the measured time."""

    def extra_rows(self, view: StepView, plan: StepPlan) -> Tensor | None:
        """Rows [B, m] of the plan whose raw logits the recorder needs beside those of the step."""
        return None

    def receive_logits(self, view: StepView, extra: Tensor) -> None:
        """Receive the raw logits [B, m, V] of `extra_rows`, before guidance."""

    def record(
        self, view: StepView, plan: StepPlan, logits: Tensor, candidates: Candidates
    ) -> Recording | None:
        """The step's recording; called outside the measured time."""
        return None

    def finish(self) -> Similarity | None:
        """Release all tensors at the end of the run; the similarity of its steps, if recorded."""
        return None


class StepRecorder(Recorder):
    """Level `steps`: each layer's plan, and the best candidates with their probabilities."""

    reads_tensors = True

    def __init__(self) -> None:
        self._plans: list[LayerPlan] = []
        self._policy: CachePolicy | None = None

    def wrap_policy(self, policy: CachePolicy) -> CachePolicy:
        """A proxy of the policy that collects its layer plans."""
        self._policy = policy
        return listen_to_plans(policy, self._plans)

    def begin(self, view: StepView) -> None:
        """Clear the plans of the step before."""
        self._plans.clear()

    def record(
        self, view: StepView, plan: StepPlan, logits: Tensor, candidates: Candidates
    ) -> Recording:
        """The plan, the candidates and the planned kinds of the step."""
        real = view.real[0]
        probabilities = upcast(logits[0, real]).softmax(-1)
        top = probabilities.topk(min(TOP_CANDIDATES, probabilities.shape[-1]), -1)
        return Recording(
            plan=self._bits(view, plan),
            positions=view.needs[0, real].cpu().numpy().astype(np.int32),
            top_ids=top.indices.cpu().numpy().astype(np.int32),
            top_probs=top.values.float().cpu().numpy(),
            planned=self._planned(view, plan),
        )

    def finish(self) -> Similarity | None:
        """Release the policy."""
        self._plans.clear()
        self._policy = None
        return None

    def rows(self, plan: StepPlan, layer: int, site: str) -> Rows:
        """The rows of sequence 0 whose `site` a layer recomputed in the step."""
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

    def _planned(self, view: StepView, plan: StepPlan) -> np.ndarray:
        assert self._policy is not None, "wrap_policy comes before the first step"
        kinds = self._policy.planned(view, plan)
        known = zip(kinds, view.regions, strict=True)
        return np.array([KINDS.index(k if area.any() else "full") for k, area in known], np.uint8)


class _PlanListener:
    """A proxy of a policy that notes its layer plans; forwards are never captured or run ahead."""

    speedups = Speedups()

    def __init__(self, policy: CachePolicy, plans: list[LayerPlan]) -> None:
        self._listened, self._noted = policy, plans

    def __getattr__(self, name: str) -> Any:
        return getattr(self._listened, name)

    def plan(self, layer: int, probe: LayerProbe) -> LayerPlan:
        plan = self._listened.plan(layer, probe)
        self._noted.append(plan)
        return plan


def listen_to_plans(policy: CachePolicy, plans: list[LayerPlan]) -> CachePolicy:
    """The policy, with every layer plan that it makes appended to `plans`."""
    return cast(CachePolicy, _PlanListener(policy, plans))
