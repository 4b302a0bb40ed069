"""Recorder, the base of the recording levels, and StepRecorder, level `steps`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, cast

import numpy as np
import torch
from torch import Tensor

from engine.cache.base import CachePolicy, LayerPlan, LayerProbe, StepPlan, StepView
from engine.cache.forward import LayerObserver, UnreadRows
from engine.cache.store import ActivationStore
from engine.core.device import HostCopy, upload
from engine.core.events import KINDS, SITES, Proposals, Recording, Similarity
from engine.core.rows import ALL, NONE, Rows
from engine.models.base import ModelAdapter
from engine.models.ops import upcast
from engine.record.notes import ForwardNotes
from engine.unmask.base import Candidates

TOP_CANDIDATES = 5


class Recorder:
    """Records data beside the events of a run; this base class, level `off`, records nothing.

    Attributes:
        unread: what the forward does with rows that only the recorder reads.
        reads_tensors: whether it reads tensors of each step before the next, which rules out
            steps that run ahead.
        notes: what its proxies of policy and adapter note during a forward, None if nothing.
        observe: called after each layer of the step that began; None if the recorder reads no
            hidden states of it. An observed forward is not replayed.
    """

    unread: ClassVar[UnreadRows] = "drop"
    reads_tensors: ClassVar[bool] = False
    notes: ForwardNotes | None = None
    observe: LayerObserver | None = None

    def wrap_policy(self, policy: CachePolicy) -> CachePolicy:
        """The policy to run: `policy`, or a proxy that observes it."""
        return policy

    def wrap_adapter(self, adapter: ModelAdapter, store: ActivationStore) -> ModelAdapter:
        """The adapter of the first branch, whose store is `store`: `adapter`, or one with hooks."""
        return adapter

    def start(self) -> None:
        """Set the state before the first step; called again when the run is rewound."""

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
        self.notes: ForwardNotes = ForwardNotes()
        self._policy: CachePolicy | None = None

    def wrap_policy(self, policy: CachePolicy) -> CachePolicy:
        """A proxy of the policy that notes its layer plans."""
        self._policy = policy
        return listen_to_plans(policy, self.notes.plans)

    def begin(self, view: StepView) -> None:
        """Clear the notes of the step before."""
        self.notes.clear()

    def record(
        self, view: StepView, plan: StepPlan, logits: Tensor, candidates: Candidates
    ) -> Recording:
        """The plan, the candidates and the planned kinds of the step."""
        real = upload(np.flatnonzero(view.real_host[0]), logits.device)
        probabilities = upcast(logits[0].index_select(0, real)).softmax(-1)
        top = probabilities.topk(min(TOP_CANDIDATES, probabilities.shape[-1]), -1)
        candidates_of = view.needs[0].index_select(0, real), top.indices, top.values.float()
        read = (candidates.ids, candidates.confidence.float(), candidates.score.double())
        proposed = [tensor[0].index_select(0, real) for tensor in read]
        proposed.append(torch.special.xlogy(probabilities, probabilities).sum(-1).float())
        rows = self.recomputed(plan)
        indices = {id(x): x[0] for layer in rows for x in layer if isinstance(x, Tensor)}
        copied = HostCopy(*candidates_of, *proposed, *indices.values()).get()
        positions, ids, probs, chosen, confidence, score, entropy, *found = copied
        return Recording(
            plan=_bits(rows, dict(zip(indices, found, strict=True)), view.run.length),
            positions=positions.astype(np.int32),
            top_ids=ids.astype(np.int32),
            top_probs=probs,
            planned=self._planned(view, plan),
            proposals=Proposals(
                chosen.astype(np.int32),
                confidence,
                score,
                entropy,
                _planned_places(view, positions),
            ),
        )

    def finish(self) -> Similarity | None:
        """Release the policy and the notes."""
        self.notes.clear()
        self._policy = None
        return None

    def recomputed(self, plan: StepPlan) -> list[list[Rows]]:
        """The rows of sequence 0 that the step recomputed, [layers][SITES]."""
        return [self._recomputed_in(layer, plan) for layer in self.notes.plans]

    def _recomputed_in(self, layer: LayerPlan, plan: StepPlan) -> list[Rows]:
        idle = layer.idle is not None and bool(layer.idle[0])
        sites: list[Rows] = [layer.k, layer.v, layer.attn, layer.ffn]
        if idle:  # its index rows are all padding
            sites = [NONE if isinstance(rows, Tensor) else rows for rows in sites]
        return [plan.rows if rows is ALL else rows for rows in sites]

    def _planned(self, view: StepView, plan: StepPlan) -> np.ndarray:
        assert self._policy is not None, "wrap_policy comes before the first step"
        kinds = self._policy.planned(view, plan)
        known = zip(kinds, view.regions, strict=True)
        return np.array([KINDS.index(k if area.any() else "full") for k, area in known], np.uint8)


def _bits(
    rows: Sequence[Sequence[Rows]], indices: Mapping[int, np.ndarray], length: int
) -> np.ndarray:
    """Packed masks [layers, SITES, ceil(T/8)] of rows; `indices` are index rows by their id."""
    numbers: dict[int, int] = {}
    masks = np.zeros((len(rows) * len(SITES), length), bool)
    for one in (one for layer in rows for one in layer if id(one) not in numbers):
        number = numbers[id(one)] = len(numbers)
        if id(one) in indices:
            masks[number, indices[id(one)]] = True
        else:
            masks[number, slice(None) if one is ALL else one] = True
    packed = np.packbits(masks[: len(numbers)], axis=-1)
    found: np.ndarray = packed[[[numbers[id(one)] for one in layer] for layer in rows]]
    return found


def _planned_places(view: StepView, positions: np.ndarray) -> np.ndarray:
    """The place int32 [n] of positions of sequence 0 in the planned order, -1 if in none."""
    places = np.full(view.run.length, -1, np.int32)
    if view.order is not None:
        places[view.order[0]] = np.arange(len(view.order[0]))
    found: np.ndarray = places[positions]
    return found


class _PlanListener:
    """A proxy of a policy that notes its layer plans."""

    def __init__(self, policy: CachePolicy, plans: list[LayerPlan]) -> None:
        self._listened, self._noted = policy, plans

    def __getattr__(self, name: str) -> Any:
        return getattr(self._listened, name)

    def plan(self, layer: int, probe: LayerProbe) -> LayerPlan:
        plan = self._listened.plan(layer, probe)
        self._noted.append(plan)
        return plan


def listen_to_plans(policy: CachePolicy, plans: list[LayerPlan]) -> CachePolicy:
    """The policy, with every layer plan that it makes appended to `plans`.

    A replayed forward makes no plans; those of ForwardNotes are then restored.
    """
    return cast(CachePolicy, _PlanListener(policy, plans))
