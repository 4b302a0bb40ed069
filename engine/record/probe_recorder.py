"""ShadowRecorder: level `probe`, an exact forward beside some steps, on the canvas they saw."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from engine.cache.base import RunInfo, StepPlan, StepView
from engine.cache.forward import forward
from engine.cache.methods.none import NoCache
from engine.cache.store import ActivationStore
from engine.core.drift_codes import NOT_EVALUATED
from engine.core.events import SITES, Recording, ProbeStep, Similarity
from engine.core.rows import Rows, to_mask
from engine.models.ops import wide
from engine.record.last_values import cosine_distance, encode_drift
from engine.record.layer_hooks import LayerHooks
from engine.record.layer_recorder import LayerRecorder
from engine.unmask.base import Candidates


class ProbeRecorder(LayerRecorder):
    """Compares at most `probes` steps with what no cache would have given them.

    They lie evenly over the tokens to reveal: the first step, and each that begins when one more
    share of the answer, out of `probes` equal ones, is known.
    """

    def __init__(self, forwards: int, probes: int) -> None:
        super().__init__(forwards)
        self._probes, self._taken = probes, 0
        self._masks: int | None = None
        self._canvas: Tensor | None = None

    def begin(self, view: StepView) -> None:
        """Keep the canvas where the step is to be compared."""
        super().begin(view)
        assert self._tap is not None
        left = int(view.masked_host[0].sum())
        self._masks = left if self._masks is None else self._masks
        reached = 1 + (self._masks - left) * self._probes // max(self._masks, 1)
        due = reached > self._taken
        self._taken = max(self._taken, reached)
        self._canvas = view.canvas[:1].clone() if due else None
        self._tap.listening = due

    def record(
        self, view: StepView, plan: StepPlan, logits: Tensor, candidates: Candidates
    ) -> Recording:
        """What the step did, and how far it lay off."""
        if self._canvas is None:
            return super().record(view, plan, logits, candidates)
        assert self._tap is not None
        assert self._latest is not None
        heard = self._tap.logits_given
        assert heard is not None, "logits are computed in every step"
        before = {site: self._latest.values[site].clone() for site in SITES}
        recording = super().record(view, plan, logits, candidates)
        after = {site: self._latest.values[site] for site in SITES}
        exact, expected = self._exact(view, self._canvas)
        error = encode_drift(_off(after, exact)).cpu().numpy()
        for site, mask in zip(SITES, _part(view, plan), strict=True):
            error[SITES.index(site)][:, ~mask] = NOT_EVALUATED
        moved = encode_drift(_off(before, exact)).cpu().numpy()
        real = view.real[0]
        found, expected = (wide(z[0, : len(real)][real]) for z in (heard, expected))
        tv = (found.softmax(-1) - expected.softmax(-1)).abs().sum(-1) / 2
        top = torch.stack((found.argmax(-1), expected.argmax(-1)), -1)
        probe = ProbeStep(
            error=np.ascontiguousarray(error.transpose(1, 0, 2)),
            moved=np.ascontiguousarray(moved.transpose(1, 0, 2)),
            positions=recording.positions,
            tv=tv.clamp_max(1).float().cpu().numpy(),
            top=top.cpu().numpy().astype(np.int32),
        )
        return replace(recording, probe=probe)

    def finish(self) -> Similarity | None:
        """As the level below."""
        self._canvas = None
        return super().finish()

    def _exact(self, view: StepView, canvas: Tensor) -> tuple[dict[str, Tensor], Tensor]:
        """Every row's exact values [layers, T, width], and the raw logits of those needed."""
        assert self._tap is not None
        tap, run = LayerHooks(self._tap.inner), view.run
        store = ActivationStore(tap.info, (), 1, run.length, tap.dtype, tap.device)
        real = torch.from_numpy(_real(run))[None].to(tap.device) if any(run.padding[:1]) else None
        logits = forward(
            tap, store, NoCache(), StepPlan(), canvas, real, view.logit_rows[:1], unread="full"
        )
        layers = range(tap.info.layers)
        whole = {
            site: torch.stack([tap.given[site, layer][0].flatten(1) for layer in layers])
            for site in SITES
        }
        return whole, logits


def _off(values: Mapping[str, Tensor], exact: Mapping[str, Tensor]) -> Tensor:
    """1 - cosine of both, [SITES, layers, T]; NaN where there is no value."""
    return torch.stack([cosine_distance(values[site], exact[site]) for site in SITES])


def _real(run: RunInfo) -> np.ndarray:
    """Positions of sequence 0 that are no padding, [T] bool."""
    return np.arange(run.length) >= sum(run.padding[:1])


def _part(view: StepView, plan: StepPlan) -> np.ndarray:
    """The rows of sequence 0 that took part: as keys for K and V, as queries else; [SITES, T]."""

    def mask(rows: Rows) -> np.ndarray:
        return to_mask(rows, len(view.canvas), view.run.length)[0].numpy()

    keys, queries = mask(plan.keys) & _real(view.run), mask(plan.rows)
    if plan.key_mask is not None:
        keys = keys & plan.key_mask[0].cpu().numpy()
    return np.stack((keys, keys, queries, queries))
