"""ProbeRecorder: level `probe`, an exact forward on the canvas of some steps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import cast

import numpy as np
import torch
from torch import Tensor

from engine.cache.base import RunInfo, StepPlan, StepView
from engine.cache.forward import LayerObserver, forward
from engine.cache.methods.none import NoCache
from engine.cache.store import ActivationStore
from engine.config.narrowing import Narrowing
from engine.core.device import upload
from engine.core.drift_codes import NOT_EVALUATED
from engine.core.events import SITES, ProbeStep, Recording, Similarity
from engine.core.rows import Rows, to_mask
from engine.models.base import ModelAdapter
from engine.models.ops import upcast
from engine.record.last_experts import count_changes
from engine.record.last_values import cosine_distance, encode_drift
from engine.record.layer_hooks import LayerHooks
from engine.record.layer_recorder import EVERYTHING, LayerRecorder
from engine.record.logit_lens import HiddenStates, read_lens
from engine.record.notes import ForwardNotes
from engine.unmask.base import Candidates


class ProbeRecorder(LayerRecorder):
    """Compares some steps with a forward without a cache: those of `chosen`, counted from 0.

    If none are chosen, at most `probes` steps are compared: the first, and then each that begins
    after another 1 / `probes` of the tokens has been committed.
    """

    def __init__(
        self,
        max_steps: int,
        probes: int,
        chosen: Sequence[int] = (),
        narrowing: Narrowing = EVERYTHING,
    ) -> None:
        super().__init__(max_steps, narrowing)
        self._probes, self._chosen = probes, frozenset(chosen)

    def start(self) -> None:
        """No step was compared yet."""
        super().start()
        self._parts_probed = 0
        self._masks_at_start: int | None = None
        self._canvas: Tensor | None = None
        self._hidden: HiddenStates | None = None

    def begin(self, view: StepView) -> None:
        """Copy the canvas if the step is to be compared."""
        super().begin(view)
        assert self._hooks is not None
        due = view.step in self._chosen if self._chosen else self._evenly_due(view)
        self._canvas = view.canvas[:1].clone() if due else None
        self._hooks.keep_logits = due
        self.observe = self._hidden = self._hidden_states(view) if due else None

    def _evenly_due(self, view: StepView) -> bool:
        """Whether the step begins another part of the tokens."""
        left = int(view.masked_host[0].sum())
        if self._masks_at_start is None:
            self._masks_at_start = left
        committed = self._masks_at_start - left
        part = 1 + committed * self._probes // max(self._masks_at_start, 1)
        due = part > self._parts_probed
        self._parts_probed = max(self._parts_probed, part)
        return due

    def record(
        self, view: StepView, plan: StepPlan, logits: Tensor, candidates: Candidates
    ) -> Recording:
        """The recording of level `layers`, and the comparison of a probed step."""
        if self._canvas is None:
            return super().record(view, plan, logits, candidates)
        assert self._hooks is not None
        assert self._last is not None
        assert self._cells is not None
        logits_used = self._hooks.raw_logits
        assert logits_used is not None, "every step computes logits"
        sites = [SITES[i] for i in self._cells.sites]
        before = {site: self._last.values[site].clone() for site in sites}
        recording = super().record(view, plan, logits, candidates)
        hidden = self._hidden_states(view)
        exact, expected, experts = self._exact(view, self._canvas, sites, hidden)
        error = self._distances(self._last.values, exact)
        participating = _participating(view, plan)[:, self._positions]
        for place, site in enumerate(self._cells.sites):
            error[place][:, ~participating[site]] = NOT_EVALUATED
        moved = self._distances(before, exact)
        real = view.real[0]
        found, expected = (upcast(z[0, : len(real)][real]) for z in (logits_used, expected))
        tv = (found.softmax(-1) - expected.softmax(-1)).abs().sum(-1) / 2
        top = torch.stack((found.argmax(-1), expected.argmax(-1)), -1)
        lens = None
        if self._hidden is not None and hidden is not None:
            positions = self._lens_positions(view.run)
            lens = read_lens(self._hooks.inner, self._hidden, hidden, positions)
        probe = ProbeStep(
            error=np.ascontiguousarray(error.transpose(1, 0, 2)),
            moved=np.ascontiguousarray(moved.transpose(1, 0, 2)),
            positions=recording.positions,
            tv=tv.clamp_max(1).float().cpu().numpy(),
            top=top.cpu().numpy().astype(np.int32),
            lens=lens,
            expert_changes=self._probed_experts(experts, participating[SITES.index("ffn")]),
        )
        self.observe = self._hidden = None
        return replace(recording, probe=probe)

    def finish(self) -> Similarity | None:
        """As level `layers`."""
        self._canvas = self.observe = self._hidden = None
        return super().finish()

    def _distances(
        self, values: Mapping[str, Tensor], exact: Mapping[str, Sequence[Tensor]]
    ) -> np.ndarray:
        """Codes of 1 - cosine of both [F, I, B] uint8; 255 if there is no value.

        One layer is compared at a time, since both values are copied in float32.
        """
        distances = [
            torch.stack([cosine_distance(*pair) for pair in zip(values[site], layers, strict=True)])
            for site, layers in exact.items()
        ]
        return encode_drift(torch.stack(distances)[..., self._positions]).cpu().numpy()

    def _lens_positions(self, run: RunInfo) -> np.ndarray:
        """The recorded positions of the answer, int32."""
        assert self._cells is not None
        recorded = self._cells.positions
        end = run.length - run.suffix_length
        found: np.ndarray = recorded[(recorded >= run.prompt_length) & (recorded < end)]
        return found

    def _hidden_states(self, view: StepView) -> HiddenStates | None:
        """An observer of the rows that predict the recorded answer; None if there are none."""
        assert self._hooks is not None
        positions, run = self._lens_positions(view.run), view.run
        if not len(positions):
            return None
        rows = np.maximum(positions - run.info.logit_shift, 0).astype(np.int64)
        return HiddenStates(upload(rows, self._hooks.device), run.length)

    def _exact(
        self,
        view: StepView,
        canvas: Tensor,
        sites: Sequence[str],
        observe: LayerObserver | None,
    ) -> tuple[dict[str, list[Tensor]], Tensor, dict[int, Tensor]]:
        """Exact values by site and recorded layer, the raw logits of the step, and experts.

        The values [T, width] and the experts [T, k], of the layers that have some, are those of
        every row.
        """
        assert self._hooks is not None
        assert self._cells is not None
        notes, run = ForwardNotes(), view.run
        hooks = LayerHooks(self._hooks.inner, notes)
        store = ActivationStore(hooks.info, (), 1, run.length, hooks.dtype, hooks.device)
        real = torch.from_numpy(_real(run))[None].to(hooks.device) if any(run.padding[:1]) else None
        logits = forward(
            cast(ModelAdapter, hooks), store, NoCache(), StepPlan(), canvas, real,
            view.logit_rows[:1], unread="full", observe=observe,
        )  # fmt: skip
        layers = self._cells.layers.tolist()
        values = {
            site: [notes.outputs[site, layer][0].flatten(1) for layer in layers] for site in sites
        }
        experts = {
            layer: notes.outputs["experts", layer][0]
            for layer in layers
            if ("experts", layer) in notes.outputs
        }
        return values, logits, experts

    def _probed_experts(
        self, exact: Mapping[int, Tensor], participating: np.ndarray
    ) -> np.ndarray | None:
        """Experts of the exact forward that are not those of the values in use, [I, B] uint8.

        `participating` [B] are the rows that take part in the step.
        """
        if self._experts is None:
            return None
        assert self._cells is not None
        last = self._experts.ids
        found = torch.full(last.shape[:2], NOT_EVALUATED, dtype=torch.uint8, device=last.device)
        for place, layer in enumerate(self._cells.layers.tolist()):
            if layer in exact:
                found[place] = count_changes(exact[layer].to(last.dtype), last[place])
        changes: np.ndarray = found[:, self._positions].cpu().numpy()
        changes[:, ~participating] = NOT_EVALUATED
        return changes


def _real(run: RunInfo) -> np.ndarray:
    """The positions of sequence 0 that are not padding, [T] bool."""
    return np.arange(run.length) >= sum(run.padding[:1])


def _participating(view: StepView, plan: StepPlan) -> np.ndarray:
    """The rows of sequence 0 that took part: of K and V the keys, else the queries; [SITES, T]."""

    def mask(rows: Rows) -> np.ndarray:
        return to_mask(rows, len(view.canvas), view.run.length)[0].numpy()

    keys, queries = mask(plan.keys) & _real(view.run), mask(plan.rows)
    if view.run.info.block_causal:  # whose rows attend to the blocks up to their own
        assert isinstance(plan.rows, slice)
        keys[plan.rows.stop :] = False
    if plan.key_mask is not None:
        keys = keys & plan.key_mask[0].cpu().numpy()
    return np.stack((keys, keys, queries, queries))
