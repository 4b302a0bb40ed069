"""LayerRecorder: level `layers`, the drift of each layer's rows and the similarity of steps."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import cast

import numpy as np
import torch
from torch import Tensor

from engine.cache.base import StepPlan, StepView
from engine.cache.store import ActivationStore
from engine.config.narrowing import Narrowing
from engine.core.events import SITES, RecordedCells, Recording, Similarity
from engine.core.rows import ALL, NONE, Rows, count
from engine.models.base import ModelAdapter
from engine.record.last_experts import LastExperts
from engine.record.last_values import LastValues
from engine.record.layer_hooks import LayerHooks
from engine.record.recorder import StepRecorder
from engine.record.sketches import Sketch
from engine.unmask.base import Candidates

EVERYTHING = Narrowing()


class LayerRecorder(StepRecorder):
    """Keeps layer outputs during the forward and evaluates them outside the measured time.

    Args:
        max_steps: the largest number of steps that the run can take.
        narrowing: the drifts to record. The similarity of steps needs K and V.
    """

    unread = "shadow"

    def __init__(self, max_steps: int, narrowing: Narrowing = EVERYTHING) -> None:
        super().__init__()
        self._max_steps, self._narrowing = max_steps, narrowing
        self._cells: RecordedCells | None = None
        self._hooks: LayerHooks | None = None
        self._store: ActivationStore | None = None
        self._last: LastValues | None = None
        self._experts: LastExperts | None = None
        self._sketch: Sketch | None = None

    def wrap_adapter(self, adapter: ModelAdapter, store: ActivationStore) -> ModelAdapter:
        """The adapter with hooks; K and V are read from `store` if it keeps them."""
        stored = [name for name in ("k", "v") if store.keeps(name)]
        self._hooks, self._store = LayerHooks(adapter, self.notes, stored), store
        return cast(ModelAdapter, self._hooks)

    def start(self) -> None:
        """Discard the values of the run before."""
        super().start()
        self._last = self._sketch = self._experts = None

    def begin(self, view: StepView) -> None:
        """Clear the step before; allocate memory before the first."""
        super().begin(view)
        if self._last is None:
            assert self._hooks is not None, "wrap_adapter comes before the first step"
            run, hooks = view.run, self._hooks
            length = run.length
            cells = self._narrowing.cells(
                hooks.info.layers, length, run.answer_length, run.suffix_length
            )
            self._cells = cells
            self._last = LastValues(hooks.info, cells, length, hooks.dtype, hooks.device)
            if (experts := hooks.info.experts) is not None:
                self._experts = LastExperts(experts.active, cells, length, hooks.device)
            if {"k", "v"} <= set(self._last.values):
                self._sketch = Sketch(view.run, self._max_steps)

    def record(
        self, view: StepView, plan: StepPlan, logits: Tensor, candidates: Candidates
    ) -> Recording:
        """The recording of level `steps`, and the drift of the values computed."""
        assert self._last is not None
        assert self._cells is not None
        recording, last = super().record(view, plan, logits, candidates), self._last
        layers, by_layer = self._cells.layers.tolist(), self.recomputed(plan)
        recomputed = {s: [by_layer[layer][i] for layer in layers] for i, s in enumerate(SITES)}
        queried = [self.notes.query_rows.get(layer, NONE) for layer in layers]
        rows = recomputed | {"q0": [plan.rows if one is ALL else one for one in queried]}
        for name in last.values:  # k and v come first
            last.update(name, rows[name], partial(self._value, name, rows[name]))
            if name == "v" and self._sketch is not None:  # still in the processor's cache
                computed = np.bitwise_or.reduce(recording.plan[:, :2], (0, 1))
                changed = np.unpackbits(computed, count=view.run.length).astype(bool)
                self._sketch.add(view.step, changed, last)
        changes = self._expert_changes(rows["ffn"])
        self.notes.clear()
        codes = last.take_codes()
        if view.step % self._narrowing.every:
            return recording
        found = codes[..., self._positions].cpu().numpy().transpose(1, 0, 2)
        return replace(
            recording, cells=self._cells, drift=np.ascontiguousarray(found), expert_changes=changes
        )

    @torch.inference_mode()
    def finish(self) -> Similarity | None:
        """The similarity of the steps kept by the sketch."""
        super().finish()
        found = None if self._sketch is None else self._sketch.result()
        self._hooks = self._store = self._last = self._sketch = self._cells = None
        self._experts = None
        return found

    def _expert_changes(self, computed: Sequence[Rows]) -> np.ndarray | None:
        """Changed experts [I, B] of the rows computed in each recorded layer; None without any."""
        if self._experts is None:
            return None
        assert self._cells is not None
        for place, (layer, rows) in enumerate(
            zip(self._cells.layers.tolist(), computed, strict=True)
        ):
            experts = self.notes.outputs.get(("experts", layer))
            if experts is not None:
                experts = experts[:1, : count(rows, experts.shape[1])]  # index rows may be padded
                self._experts.update(place, rows, experts)
        return self._experts.take_changes()[:, self._positions].cpu().numpy()

    @property
    def _positions(self) -> slice:
        """The recorded positions."""
        assert self._cells is not None
        return slice(int(self._cells.positions[0]), int(self._cells.positions[-1]) + 1)

    def _value(self, name: str, chosen: Sequence[Rows], place: int) -> Tensor:
        """What a recorded layer computed of sequence 0 at the rows `chosen[place]`, [1, n, ...]."""
        assert self._store is not None
        assert self._cells is not None
        layer = int(self._cells.layers[place])
        if name in ("k", "v") and self._store.keeps(name):
            return self._store.read(layer, name, chosen[place])[:1].transpose(1, 2)
        output = self.notes.outputs[name, layer]
        return output[:1, : count(chosen[place], output.shape[1])]  # index rows may be padded
