"""CapturedForwards: run the forwards of one guidance branch, captured and replayed where possible.

The captured part is ForwardPass.begin, on input tensors with fixed addresses. A forward runs
eagerly the first time, is captured the second time and replayed from then on.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from engine.cache.base import CachePolicy, StepPlan
from engine.cache.forward import ForwardPass, LayerObserver, ResidualStream, UnreadRows
from engine.cache.store import ActivationStore
from engine.core.rows import Rows, count
from engine.generate.capture.capturers import Call, CaptureError, Capturer
from engine.models.base import ModelAdapter
from engine.models.flops import FlopCounter
from engine.models.ops import Rotary
from engine.record.notes import ForwardNotes, SavedNotes

MAX_FORWARDS = 24  # forwards remembered for a branch, captured or seen once


class _Inputs:
    """The inputs of a forward: tensors in shapes that recur, and a hashable key of the rest."""

    def __init__(
        self, plan: StepPlan, canvas: Tensor, row_multiple: int, sliding_window: bool
    ) -> None:
        rows, length = plan.rows, canvas.shape[1]
        if sliding_window and isinstance(rows, slice):
            positions = torch.arange(rows.start, rows.stop, device=canvas.device)
            rows = positions.expand(len(canvas), -1)
        elif isinstance(rows, Tensor):
            rows = _padded(rows, row_multiple, length)
        self.indexed = isinstance(rows, Tensor)
        assert not self.indexed or plan.output_rows is None, (
            "rows of an index go through all layers"
        )
        fields: dict[str, Any] = {"rows": rows, "keys": plan.keys, "key_mask": plan.key_mask}
        self._plan = replace(plan, **fields)
        self.tensors = {name: x for name, x in fields.items() if isinstance(x, Tensor)}
        self.tensors["canvas"] = canvas
        shapes = ((name, tuple(x.shape)) for name, x in self.tensors.items())
        others = (None if isinstance(x, Tensor) else _hashable(x) for x in fields.values())
        self.key = plan.kind, tuple(shapes), tuple(others), _hashable(plan.output_rows)

    def on(self, step: ForwardPass, tensors: Mapping[str, Tensor]) -> ForwardPass:
        """The forward pass of a step on tensors of these shapes, with a FLOP counter of its own."""
        fields: dict[str, Any] = dict(tensors)
        canvas, counter = fields.pop("canvas"), FlopCounter(step.adapter.info)
        return replace(step, plan=replace(self._plan, **fields), canvas=canvas, counter=counter)

    def cost(self, counter: FlopCounter) -> FlopCounter:
        """The FLOPs of a forward, for a single row if the rows are an index, perhaps padded."""
        return counter.per_row(self.tensors["rows"].shape[1]) if self.indexed else counter

    def finish(self, step: ForwardPass, found: ResidualStream, cost: FlopCounter) -> ResidualStream:
        """The output `found` of the forward without padding rows; adds the cost to the step's."""
        if not self.indexed:
            step.counter.add(cost)
            return found
        size = count(step.plan.rows, 0)
        step.counter.add(cost, size)
        return ResidualStream(found.h[:, :size], step.plan.rows)


@dataclass(frozen=True)
class _Captured:
    """A captured forward: its input tensors, output rows, cost and the rows written after it.

    A replay returns the residual stream and the tensors of `notes`. The forward runs eagerly if
    `replay` is None.
    """

    inputs: Mapping[str, Tensor]
    rows: Rows
    replay: Call | None
    notes: SavedNotes
    cost: FlopCounter
    written: Mapping[tuple[int, str], int]
    rotary: Rotary  # read by the captured kernels; the adapter may drop it


class CapturedForwards:
    """The forwards of one guidance branch; without a `capturer` all run eagerly.

    A replay fills `notes` as the forward did when it ran. The MAX_FORWARDS used last are kept.
    `failure` says why capturing was switched off, if it was.
    """

    def __init__(
        self,
        adapter: ModelAdapter,
        store: ActivationStore,
        policy: CachePolicy,
        capturer: Capturer | None = None,
        notes: ForwardNotes | None = None,
    ) -> None:
        self._adapter, self._store, self._policy = adapter, store, policy
        self._capturer, self.failure = capturer, ""
        self._notes = notes or ForwardNotes()
        self._known: OrderedDict[Hashable, _Captured | None] = OrderedDict()  # None: seen once

    @property
    def complete(self) -> bool:
        """Whether no known forward is still to be captured."""
        return None not in self._known.values()

    def __call__(
        self,
        plan: StepPlan,
        canvas: Tensor,
        pad_mask: Tensor | None,
        logit_rows: Tensor,
        counter: FlopCounter,
        unread: UnreadRows,
        observe: LayerObserver | None = None,
    ) -> Tensor:
        """Raw logits [B, n, V] of `logit_rows`; arguments as engine.cache.forward.forward.

        An observed forward runs eagerly, in the shapes in which it would be captured.
        """
        step = ForwardPass(
            self._adapter, self._store, self._policy, plan, canvas, pad_mask, counter, unread,
            observe,
        )  # fmt: skip
        key_of = None if self._capturer is None else self._policy.speedups.capture_key
        capture_key = None if key_of is None else key_of(self._policy)
        stream = step.begin() if capture_key is None else self._begin(step, capture_key)
        return step.finish(stream, logit_rows)

    def _begin(self, step: ForwardPass, capture_key: Hashable) -> ResidualStream:
        """ForwardPass.begin of a step: eager the first time, in the shapes to be captured."""
        assert self._capturer is not None
        inputs = _Inputs(
            step.plan,
            step.canvas,
            self._capturer.row_multiple,
            self._capturer.sliding_window and self._policy.speedups.sliding_window,
        )
        key = capture_key, step.unread, inputs.key
        seen, known = key in self._known, self._known.pop(key, None)
        self._known[key] = known
        while len(self._known) > MAX_FORWARDS:
            self._known.popitem(last=False)
        observed = step.observe is not None
        if known is None and seen and not observed:
            return self._capture(key, inputs, step)
        if known is None or known.replay is None or observed:
            eager = inputs.on(step, inputs.tensors)
            return inputs.finish(step, eager.begin(), inputs.cost(eager.counter))
        for name, value in inputs.tensors.items():
            known.inputs[name].copy_(value)
        h, *noted = known.replay()
        self._notes.restore(known.notes, noted)
        self._store.mark_written(known.written)
        return inputs.finish(step, ResidualStream(h, known.rows), known.cost)

    def _capture(self, key: Hashable, inputs: _Inputs, step: ForwardPass) -> ResidualStream:
        """Capture ForwardPass.begin of a step; on failure all later forwards run eagerly."""
        assert self._capturer is not None
        fixed = {name: value.clone() for name, value in inputs.tensors.items()}
        copy = inputs.on(step, fixed)
        rotary = self._adapter.rotary(step.canvas.shape[1])
        found: list[tuple[Rows, SavedNotes]] = []

        def begin() -> list[Tensor]:
            h, rows = copy.begin()
            notes, noted = self._notes.save()
            found.append((rows, notes))
            return [h, *noted]

        try:
            results, replay = self._capturer.capture(begin)
        except CaptureError as error:
            self._capturer, self.failure = None, str(error)
            self._known.clear()
            self._notes.clear()
        if self._capturer is None:  # the error is gone, and with it the tensors of its frames
            return step.begin()
        ((rows, notes),), cost = found, inputs.cost(copy.counter)
        written = self._store.written_rows
        self._known[key] = _Captured(fixed, rows, replay, notes, cost, written, rotary)
        return inputs.finish(step, ResidualStream(results[0], rows), cost)


def _padded(rows: Tensor, multiple: int, most: int) -> Tensor:
    """Index rows [B, n], the last repeated up to the next multiple of `multiple`, or `most`."""
    size = rows.shape[1]
    missing = max(0, min(-(-size // multiple) * multiple, most) - size)
    return torch.cat((rows, rows[:, -1:].expand(-1, missing)), 1) if missing else rows


def _hashable(value: Any) -> Hashable:
    """A slice as a tuple; any other value unchanged."""
    found: Hashable = (value.start, value.stop) if isinstance(value, slice) else value
    return found
