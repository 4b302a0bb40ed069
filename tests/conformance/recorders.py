"""Recorders that compare a run with a recording while it is decoded."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from engine.cache.base import CachePolicy, LayerPlan, StepPlan, StepView
from engine.cache.store import ActivationStore
from engine.core.device import upload
from engine.core.rows import to_mask
from engine.models.base import ModelAdapter
from engine.record.recorder import Recorder, listen_to_plans

Arrays = Mapping[str, np.ndarray]


class RecordedLogits:
    """The recorded rows of logits and how far computed ones differ from them.

    `last` is the last call whose logits are compared, and `compared` counts the rows.
    """

    def __init__(self, golden: Arrays, last: int) -> None:
        self._calls, self._positions = golden["logit_call"], golden["logit_pos"]
        self._logits, self._last = golden["logits"], last
        self._gaps: list[tuple[np.ndarray, np.ndarray]] = []  # differences, recorded magnitudes
        self.compared = 0

    def error(self, rtol: float = 0.0) -> float:
        """The widest difference beyond `rtol` times the recorded logits, NaN if one is."""
        return float(np.max([0.0, *(np.max(gap - rtol * size) for gap, size in self._gaps)]))

    def __len__(self) -> int:
        return len(self._calls)

    def entries(self, call: int) -> np.ndarray:
        """Indices of the rows recorded of a call, by position."""
        here = np.flatnonzero(self._calls == call)
        found: np.ndarray = here[np.argsort(self._positions[here])]
        return found

    def positions(self, entries: np.ndarray) -> np.ndarray:
        """The positions of entries."""
        found: np.ndarray = self._positions[entries]
        return found

    def count_unfed(self, entries: np.ndarray) -> None:
        """Compare entries that were not fed, which are recorded as zeros."""
        self.compared += int((self._logits[entries] == 0).all(1).sum())

    def compare(self, call: int, entries: np.ndarray, logits: Tensor) -> None:
        """Compare computed logits [n, V] with n entries of a call."""
        self.compared += len(entries)
        if call > self._last or not len(entries):
            return
        expected = self._logits[entries]
        self._gaps.append((np.abs(logits.cpu().numpy() - expected), np.abs(expected)))


def wide(error: float, atol: float) -> list[str]:
    """The difference of logits, if it is wider than the tolerance or NaN."""
    return [] if error <= atol else [f"logits differ by {error:.3g}"]


class RecordedSets:
    """The recorded row selections of a run by call and layer; unstable ones are not compared.

    They change the logits of their call and of all later ones.
    """

    def __init__(self, golden: Arrays) -> None:
        self.recorded: dict[tuple[int, int], set[int] | None] = {}
        self.compared = self.wrong = 0
        self.first_unstable = 10**9
        if "upd_call" not in golden:
            return
        columns = ("upd_call", "upd_layer", "upd_idx", "upd_stable")
        for call, layer, rows, stable in zip(*(golden[c] for c in columns), strict=True):
            self.recorded[int(call), int(layer)] = set(rows[rows >= 0].tolist()) if stable else None
            if not stable:
                self.first_unstable = min(self.first_unstable, int(call))

    def compare(self, view: StepView, layer: int, plan: LayerPlan) -> None:
        """Compare the rows of the answer that a layer recomputes."""
        if (view.step, layer) not in self.recorded:
            return
        expected = self.recorded[view.step, layer]
        self.compared += 1
        start = view.run.prompt_length
        rows = to_mask(plan.ffn, 1, view.run.length)[0, start:].nonzero()[:, 0].tolist()
        self.wrong += expected is not None and set(rows) != expected


class ObservedRecorder(Recorder):
    """Asks for the logits of all recorded rows, and notes the rows that are fed and recomputed."""

    def __init__(self, golden: Arrays) -> None:
        self.sets = RecordedSets(golden)
        self.logits = RecordedLogits(golden, self.sets.first_unstable - 1)
        self.fed: list[np.ndarray] = []
        self.influence, self.influence_error = golden.get("x_global_importance", ()), 0.0
        self._plans: list[LayerPlan] = []

    def wrap_policy(self, policy: CachePolicy) -> CachePolicy:
        """A proxy that notes the plans."""
        self._policy: Any = policy
        return listen_to_plans(policy, self._plans)

    def record(self, view: StepView, plan: StepPlan, logits: Tensor, candidates: Any) -> None:
        """Compare the plans and the attention roll-out of a step."""
        for layer, layer_plan in enumerate(self._plans):
            self.sets.compare(view, layer, layer_plan)
        self._plans.clear()
        if view.step < len(self.influence):
            gap = np.abs(self._policy.influence[0].cpu().numpy() - self.influence[view.step]).max()
            self.influence_error = max(self.influence_error, float(gap))

    def extra_rows(self, view: StepView, plan: StepPlan) -> Tensor | None:
        """The recorded rows among those that are fed."""
        fed = to_mask(plan.rows, 1, view.run.length)[0].numpy()
        self.fed.append(fed)
        here = self.logits.entries(view.step)
        self._here = here[fed[self.logits.positions(here)]]
        self.logits.count_unfed(np.setdiff1d(here, self._here))
        rows = self.logits.positions(self._here)
        return upload(rows[None].astype(np.int64), view.canvas.device) if len(rows) else None

    def receive_logits(self, view: StepView, extra: Tensor) -> None:
        """Compare the recorded rows."""
        self.logits.compare(view.step, self._here, extra[0])


class HeadTap:
    """An adapter that keeps its last raw logits [B, n, V]."""

    def __init__(self, inner: ModelAdapter) -> None:
        self._inner = inner
        self.raw = torch.empty(0)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def logits(self, h: Tensor) -> Tensor:
        """As the inner adapter."""
        out = self._inner.logits(h)
        self.raw = out.clone()
        return out


class ShippedRecorder(Recorder):
    """Compares the recorded rows that a run computes anyway; it changes nothing in the run."""

    def __init__(self, golden: Arrays) -> None:
        self.logits = RecordedLogits(golden, RecordedSets(golden).first_unstable - 1)

    def wrap_adapter(self, adapter: ModelAdapter, store: ActivationStore) -> Any:
        """A proxy that keeps the logits before guidance."""
        self._head = HeadTap(adapter)
        return self._head

    def record(self, view: StepView, plan: StepPlan, logits: Tensor, candidates: Any) -> None:
        """Compare the recorded rows among those of the step."""
        computed = view.logit_rows[0].cpu().numpy()
        here = self.logits.entries(view.step)
        here = here[np.isin(self.logits.positions(here), computed)]
        places = [int(np.argmax(computed == p)) for p in self.logits.positions(here)]
        self.logits.compare(view.step, here, self._head.raw[0, places])
