"""LayerRecorder: level `layers`, how far each layer's rows move and how alike the steps are."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

import numpy as np
import torch
from torch import Tensor

from engine.cache.base import StepPlan, StepView
from engine.cache.store import ActivationStore
from engine.core.events import SITES, Recording, Similarity
from engine.core.rows import ALL, Rows, take
from engine.models.base import ModelAdapter
from engine.record.last_values import LastValues
from engine.record.layer_hooks import LayerHooks
from engine.record.recorder import StepRecorder
from engine.record.sketches import Sketch
from engine.unmask.base import Candidates

NONE = slice(0, 0)


class LayerRecorder(StepRecorder):
    """Listens to the adapter during the forward; works and copies only after the clocks.

    `forwards` is the most steps that the run may take.
    """

    unread = "shadow"

    def __init__(self, forwards: int) -> None:
        super().__init__()
        self._forwards = forwards
        self._tap: LayerHooks | None = None
        self._store: ActivationStore | None = None
        self._latest: LastValues | None = None
        self._sketch: Sketch | None = None

    def wrap_adapter(self, adapter: ModelAdapter, store: ActivationStore) -> ModelAdapter:
        """The adapter, listened to; K and V are read from `store` where it keeps them."""
        self._tap, self._store = LayerHooks(adapter), store
        return self._tap

    def begin(self, view: StepView) -> None:
        """Forget the step before; make room before the first."""
        super().begin(view)
        if self._latest is None:
            assert self._tap is not None, "the adapter is tapped before the first step"
            length, tap = view.run.length, self._tap
            self._latest = LastValues(tap.info, length, tap.dtype, tap.device)
            self._sketch = Sketch(view.run, self._forwards)

    def record(
        self, view: StepView, plan: StepPlan, logits: Tensor, candidates: Candidates
    ) -> Recording:
        """What the step did, and the drift of what it computed."""
        assert self._tap is not None
        assert self._latest is not None
        assert self._sketch is not None
        recording, latest = super().record(view, plan, logits, candidates), self._latest
        latest.clear()
        layers = range(self._tap.info.layers)
        for site in SITES:
            rows = [self.rows(plan, layer, site) for layer in layers]
            latest.renew(site, rows, partial(self._value, site, rows))
        asked = [self._tap.rows.get(layer, NONE) for layer in layers]
        rows = [plan.rows if chosen is ALL else chosen for chosen in asked]
        latest.renew("q0", rows, partial(self._value, "q0", rows))
        computed = np.bitwise_or.reduce(recording.plan[:, :2], (0, 1))
        changed = np.unpackbits(computed, count=view.run.length).astype(bool)
        self._sketch.take(view.step, changed, latest)
        self._tap.forget()
        codes = latest.codes.cpu().numpy().transpose(1, 0, 2)
        return replace(recording, drift=np.ascontiguousarray(codes))

    @torch.inference_mode()
    def finish(self) -> Similarity | None:
        """The similarity of the steps kept."""
        super().finish()
        found = None if self._sketch is None else self._sketch.result()
        self._tap = self._store = self._latest = self._sketch = None
        return found

    def _value(self, name: str, chosen: Sequence[Rows], layer: int) -> Tensor:
        """What a layer computed of sequence 0 at global `chosen[layer]`, [n, ...]."""
        assert self._tap is not None
        assert self._store is not None
        if name in ("k", "v"):
            if self._store.keeps(name):
                return self._store.read(layer, name, chosen[layer])[0].transpose(0, 1)
            return take(self._tap.given[name, layer], chosen[layer])[0]
        return self._tap.given[name, layer][0]
