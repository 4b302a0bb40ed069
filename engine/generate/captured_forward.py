"""Graphs: parts of a run's forwards that are captured once and replayed.

What is captured is the first part of engine.cache.forward.ForwardPass itself, on inputs that stay where they
are: as CUDA graphs on a GPU, as tapes (engine.generate.tape) on a CPU. It is met eagerly once, captured
when met again and replayed from then on.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from engine.cache.base import CachePolicy, StepPlan
from engine.cache.forward import ForwardPass, ResidualStream, UnreadRows
from engine.cache.store import ActivationStore
from engine.core.rows import Rows, count
from engine.generate.capturers import Capturer, NotCaptured, Replay
from engine.models.base import ModelAdapter
from engine.models.flops import FlopCounter
from engine.models.ops import Rotary

MOST = 24  # captured forwards kept at a time, and forwards remembered, for each branch


class _Call:
    """The tensors of a forward, in shapes that recur, and a key of all else that it is given."""

    def __init__(self, plan: StepPlan, canvas: Tensor, bucket: int, sliding_window: bool) -> None:
        rows, length = plan.rows, canvas.shape[1]
        if sliding_window and isinstance(rows, slice):
            places = torch.arange(rows.start, rows.stop, device=canvas.device)
            rows = places.expand(len(canvas), -1)
        elif isinstance(rows, Tensor):
            rows = _padded(rows, bucket, length)
        self.indexed = isinstance(rows, Tensor)
        assert not self.indexed or plan.output_rows is None, (
            "rows of an index go through all layers"
        )
        fields: dict[str, Any] = {"rows": rows, "keys": plan.keys, "key_mask": plan.key_mask}
        self._plan = replace(plan, **fields)
        self.tensors = {name: x for name, x in fields.items() if isinstance(x, Tensor)}
        self.tensors["canvas"] = canvas
        shapes = ((name, tuple(x.shape)) for name, x in self.tensors.items())
        others = (None if isinstance(x, Tensor) else _plain(x) for x in fields.values())
        self.key = plan.kind, tuple(shapes), tuple(others), _plain(plan.output_rows)

    def arguments(self, tensors: Mapping[str, Tensor]) -> tuple[StepPlan, Tensor]:
        """Plan and canvas out of tensors like these."""
        fields: dict[str, Any] = dict(tensors)
        canvas = fields.pop("canvas")
        return replace(self._plan, **fields), canvas

    def cost(self, counter: FlopCounter) -> FlopCounter:
        """What a forward has spent, for a single row where rows are an index, perhaps filled up."""
        return counter.each(self.tensors["rows"].shape[1]) if self.indexed else counter

    def end(self, step: ForwardPass, found: ResidualStream, cost: FlopCounter) -> ResidualStream:
        """What a step goes on with, out of what such a forward has `found`; the cost is noted."""
        if not self.indexed:
            step.counter.add(cost)
            return found
        size = count(step.plan.rows, 0)
        step.counter.add(cost, size)
        return ResidualStream(found.h[:, :size], step.plan.rows)


@dataclass(frozen=True)
class _Captured:
    """The first part of a forward on inputs of its own, where it ends and what it writes.

    Without a `replay` it is done eagerly.
    """

    inputs: Mapping[str, Tensor]
    rows: Rows
    replay: Replay | None
    cost: FlopCounter
    written: frozenset[tuple[int, str]]


class CapturedForwards:
    """The forwards of one branch; without a `capturer` all are eager.

    At most MOST are kept, those used last. `why` says why capturing was given up.
    """

    def __init__(
        self,
        adapter: ModelAdapter,
        store: ActivationStore,
        policy: CachePolicy,
        capturer: Capturer | None = None,
    ) -> None:
        self._adapter, self._store, self._policy = adapter, store, policy
        self._capturer, self.why = capturer, ""
        self._known: OrderedDict[Hashable, _Captured | None] = OrderedDict()  # None: met once
        self._tables: Rotary | None = None

    @property
    def settled(self) -> bool:
        """Whether all that was met and could be captured is captured."""
        return None not in self._known.values()

    @property
    def held(self) -> int:
        """How many forwards are captured."""
        return sum(known is not None for known in self._known.values())

    def __call__(
        self,
        plan: StepPlan,
        canvas: Tensor,
        pad_mask: Tensor | None,
        logit_rows: Tensor,
        counter: FlopCounter,
        unread: UnreadRows,
    ) -> Tensor:
        """As engine.cache.forward.forward."""
        step = ForwardPass(
            self._adapter, self._store, self._policy, plan, canvas, pad_mask, counter, unread
        )
        capture_key = None if self._capturer is None else self._policy.capture_key()
        stream = step.begin() if capture_key is None else self._begun(step, capture_key)
        return step.finish(stream, logit_rows)

    def _begun(self, step: ForwardPass, capture_key: Hashable) -> ResidualStream:
        """The first part of a step; met first, it is eager, in the shapes that will be captured."""
        assert self._capturer is not None
        call = _Call(
            step.plan,
            step.canvas,
            self._capturer.bucket,
            self._capturer.sliding_window and self._policy.sliding_window,
        )
        key = capture_key, step.unread, call.key
        met, known = key in self._known, self._known.pop(key, None)
        self._known[key] = known
        while len(self._known) > MOST:
            self._known.popitem(last=False)
        if known is None and met:
            return self._capture(key, call, step)
        if known is None or known.replay is None:
            alike = self._alike(step, call, call.tensors)
            found = alike.begin()
            return call.end(step, found, call.cost(alike.counter))
        for name, value in call.tensors.items():
            known.inputs[name].copy_(value)
        h = known.replay()
        self._store.declare(known.written)
        return call.end(step, ResidualStream(h, known.rows), known.cost)

    def _capture(self, key: Hashable, call: _Call, step: ForwardPass) -> ResidualStream:
        """Capture the first part of a step; where that fails, all is eager from now on."""
        assert self._capturer is not None
        inputs = {name: value.clone() for name, value in call.tensors.items()}
        alike = self._alike(step, call, inputs)
        self._tables = self._adapter.rotary(step.canvas.shape[1])  # kept from its cache's end
        ends: list[Rows] = []

        def begin() -> Tensor:
            h, rows = alike.begin()
            ends.append(rows)
            return h

        try:
            h, again = self._capturer.capture(begin)
        except NotCaptured as error:
            self._capturer, self.why = None, str(error)
            self._known.clear()
            return step.begin()
        cost = call.cost(alike.counter)
        self._known[key] = _Captured(inputs, ends[0], again, cost, self._store.declared)
        return call.end(step, ResidualStream(h, ends[0]), cost)

    def _alike(self, step: ForwardPass, call: _Call, tensors: Mapping[str, Tensor]) -> ForwardPass:
        """The step on other tensors, with a ledger of its own."""
        plan, canvas = call.arguments(tensors)
        return replace(step, plan=plan, canvas=canvas, counter=FlopCounter(self._adapter.info))


def _padded(rows: Tensor, bucket: int, most: int) -> Tensor:
    """Index rows [B, n], the last repeated up to a full bucket or `most`."""
    size = rows.shape[1]
    missing = max(0, min(-(-size // bucket) * bucket, most) - size)
    return torch.cat((rows, rows[:, -1:].expand(-1, missing)), 1) if missing else rows


def _plain(value: Any) -> Hashable:
    """A slice as what can be a key; anything else as it is."""
    found: Hashable = (value.start, value.stop) if isinstance(value, slice) else value
    return found
