"""Graphs: forwards of a run that are captured once and replayed, CUDA graphs where they can be.

What is captured is engine.forward.forward itself, on inputs that stay where they are. A forward
is met eagerly once, captured when met again and replayed from then on.
"""

from __future__ import annotations

import os
from collections import OrderedDict
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Protocol

import torch
from torch import Tensor

from engine.cache.base import CachePolicy, StepPlan
from engine.cache.store import ActivationStore
from engine.flops import Ledger
from engine.forward import Unread, forward
from engine.models.base import ModelAdapter
from engine.models.ops import Rotary
from engine.zero import on_zero

MOST = 24  # captured forwards kept at a time, for each branch
BUCKET = 64  # index rows are padded to a multiple of so many


class Capturer(Protocol):
    """Makes a call repeatable."""

    def capture(self, call: Callable[[], Tensor]) -> tuple[Tensor, Callable[[], None]]:
        """What `call` gives, and what does its work again into the same memory.

        The work need not have been done when this returns.
        """


class CudaCapturer:
    """CUDA graphs that share one pool of memory, which goes when the last of them does."""

    def __init__(self, device: torch.device) -> None:
        self._device, self._pool = device, torch.cuda.graph_pool_handle()

    def capture(self, call: Callable[[], Tensor]) -> tuple[Tensor, Callable[[], None]]:
        """Record the call's kernels; nothing is computed yet."""
        graph = torch.cuda.CUDAGraph()
        with (
            torch.cuda.device(self._device),
            torch.cuda.graph(graph, pool=self._pool, capture_error_mode="thread_local"),
        ):
            out = call()
        return out, graph.replay


def why_eager(adapter: ModelAdapter, listens: bool, guided: bool) -> str:
    """Why a run's forwards cannot be captured; empty where they can.

    `listens` says that a recorder follows the forward, `guided` that another model runs between.
    """
    if adapter.device.type != "cuda":
        return f"graphs are captured on cuda, the model lies on {adapter.device.type}"
    if on_zero(os.environ):
        return "on ZeroGPU each run has a process of its own, which would capture anew"
    if any(hasattr(module, "_hf_hook") for module in adapter.modules()):
        return "some weights lie elsewhere and are fetched when they are used"
    if listens:
        return "a recorder follows the forward"
    return "another model runs between the forwards" if guided else ""


class _Call:
    """The tensors of a forward, in shapes that recur, and a key of all else that it is given."""

    def __init__(self, plan: StepPlan, canvas: Tensor, logit_rows: Tensor, slides: bool) -> None:
        rows, length = plan.rows, canvas.shape[1]
        if slides and isinstance(rows, slice):
            places = torch.arange(rows.start, rows.stop, device=canvas.device)
            rows = places.expand(len(canvas), -1)
        elif isinstance(rows, Tensor):
            rows = _padded(rows, length)
        fields: dict[str, Any] = {
            "rows": rows, "keys": plan.keys, "key_mask": plan.key_mask, "onward": plan.onward,
        }  # fmt: skip
        self._plan = replace(plan, **fields)
        self.tensors = {name: x for name, x in fields.items() if isinstance(x, Tensor)}
        self.tensors |= {"canvas": canvas, "logit_rows": _padded(logit_rows, length)}
        shapes = ((name, tuple(x.shape)) for name, x in self.tensors.items())
        others = (None if isinstance(x, Tensor) else _plain(x) for x in fields.values())
        self.key = plan.kind, tuple(shapes), tuple(others)

    def arguments(self, tensors: Mapping[str, Tensor]) -> tuple[StepPlan, Tensor, Tensor]:
        """Plan, canvas and logit rows out of tensors like these."""
        fields: dict[str, Any] = dict(tensors)
        canvas, logit_rows = fields.pop("canvas"), fields.pop("logit_rows")
        return replace(self._plan, **fields), canvas, logit_rows


def capturer_of(adapter: ModelAdapter, listens: bool, guided: bool) -> Capturer | None:
    """What captures a run's forwards; None where they cannot be (see `why_eager`)."""
    return None if why_eager(adapter, listens, guided) else CudaCapturer(adapter.device)


@dataclass(frozen=True)
class _Captured:
    """A captured forward: its inputs, its result, what it costs and what it writes."""

    inputs: Mapping[str, Tensor]
    out: Tensor
    replay: Callable[[], None]
    ledger: Ledger
    written: frozenset[tuple[int, str]]


class Graphs:
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
        self._met: set[Hashable] = set()
        self._captured: OrderedDict[Hashable, _Captured] = OrderedDict()
        self._tables: Rotary | None = None

    @property
    def held(self) -> int:
        """How many forwards are captured."""
        return len(self._captured)

    def __call__(
        self,
        plan: StepPlan,
        canvas: Tensor,
        pad_mask: Tensor | None,
        logit_rows: Tensor,
        ledger: Ledger,
        unread: Unread,
    ) -> Tensor:
        """As engine.forward.forward; the next call overwrites the logits."""
        occasion = None if self._capturer is None else self._policy.occasion()
        if occasion is None:
            return self._eager(plan, canvas, logit_rows, pad_mask, ledger, unread)
        call = _Call(plan, canvas, logit_rows, self._policy.slides)
        key = occasion, unread, call.key
        if key in self._met and key not in self._captured:
            self._capture(key, call, pad_mask, unread)
        self._met.add(key)
        known = self._captured.get(key)
        if known is None:
            out = self._eager(*call.arguments(call.tensors), pad_mask, ledger, unread)
        else:
            self._captured.move_to_end(key)
            for name, value in call.tensors.items():
                known.inputs[name].copy_(value)
            known.replay()
            ledger.add(known.ledger)
            self._store.declare(known.written)
            out = known.out
        return out[:, : logit_rows.shape[1]]

    def _capture(self, key: Hashable, call: _Call, pad_mask: Tensor | None, unread: Unread) -> None:
        """Capture a call; where that fails, all is eager from now on."""
        assert self._capturer is not None
        inputs = {name: value.clone() for name, value in call.tensors.items()}
        arguments, spent = call.arguments(inputs), Ledger(self._adapter.info)
        self._tables = self._adapter.rotary(inputs["canvas"].shape[1])  # kept from its cache's end
        try:
            out, replay = self._capturer.capture(
                lambda: self._eager(*arguments, pad_mask, spent, unread)
            )
        except RuntimeError as error:  # out of memory, or an operation that cannot be captured
            self._capturer, self.why = None, str(error)
            self._captured.clear()
            return
        written = self._store.declared
        self._captured[key] = _Captured(inputs, out, replay, spent, written)
        while len(self._captured) > MOST:
            self._captured.popitem(last=False)

    def _eager(
        self,
        plan: StepPlan,
        canvas: Tensor,
        logit_rows: Tensor,
        pad_mask: Tensor | None,
        ledger: Ledger,
        unread: Unread,
    ) -> Tensor:
        return forward(
            self._adapter, self._store, self._policy, plan, canvas, pad_mask, logit_rows, ledger,
            unread,
        )  # fmt: skip


def _padded(rows: Tensor, most: int) -> Tensor:
    """Index rows [B, n], the last repeated up to a full bucket or `most`."""
    size = rows.shape[1]
    missing = max(0, min(-(-size // BUCKET) * BUCKET, most) - size)
    return torch.cat((rows, rows[:, -1:].expand(-1, missing)), 1) if missing else rows


def _plain(value: Any) -> Hashable:
    """A slice as what can be a key; anything else as it is."""
    found: Hashable = (value.start, value.stop) if isinstance(value, slice) else value
    return found
