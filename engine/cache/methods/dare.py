"""DARE: a row is reused while head 1 of its query has hardly drifted (arXiv 2605.08134).

The paper's code is not available, so the formulas are reconstructed from its words and tables:

- drift: 1 - cosine of a row's query in the first head between two steps;
- layer drift S: its mean over the steps and rows of a calibration run;
- reuse quantiles: q = layers * qbar * softmax(-S / temperature), the closed form of MoDeGPT's
  allocation of sparsity, whose mean is qbar. The cap at 0.95 is ours, as the paper's form may
  exceed 1;
- threshold: the quantile q of the layer's calibration drifts. The floor of 1e-5 is ours, for
  queries that changed by rounding only.

The calibration runs the cache that DARE is stacked on, without reuse. Reuse makes rows drift less,
so the share that is reused exceeds qbar. In layer 1 a query depends on the token alone: if the
attention outputs of all unchanged tokens are reused there, the input of layer 2 does not change
either, and so on upwards. The paper skips layers in one experiment only, on Fast-dLLM v2: the first
two, with a refresh in every second step.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from engine.cache.base import (
    CachePolicy,
    DataRows,
    LayerPlan,
    LayerProbe,
    PolicyContext,
    RunInfo,
    Speedups,
    StepPlan,
    StepView,
)
from engine.cache.calibration.drift_profile import DriftProfile
from engine.cache.calibration.thresholds import CAP, allocate, thresholds
from engine.cache.selection import marked_rows
from engine.cache.store import Site
from engine.config.knobs import Scalar, knob
from engine.core.reasons import Reason
from engine.core.rows import NONE, Rows, count, is_empty

TOLERATED = (0.001, 0.01, 0.05)  # below which a fitted setting reuses a row


@dataclass
class Dare(CachePolicy):
    """The part common to both forms: drifts, thresholds and the count of a row's reuses."""

    paper = "arXiv 2605.08134"
    stackable_on = ("none", "prefix", "dual", "freecache", "frozen")
    reasons = (
        Reason("the first step of a run has nothing to reuse", "first_step"),
        *(Reason("nothing is reused, because the reuse quantile is 0", f"qbar={zero}")
          for zero in ("0", "0.0")),
        Reason("nothing is reused in layer {layer}", "no:threshold"),
        Reason("every row that enters this step is recomputed: a refresh is due, the cache that "
               "DARE is stacked on refreshes its rows, or the query of every row has drifted too "
               "far", "every_row"),
        Reason("since the last step that recomputed the row, the query of its first head has "
               "drifted by no more than this layer's threshold[ of {fact:threshold}]",
               "!recomputed ref=anchor"),
        Reason("since the last step that recomputed the row, the query of its first head has "
               "drifted by more than this layer's threshold[ of {fact:threshold}]", "ref=anchor"),
        Reason("the query of its first head has drifted[ by {drift:q0}], no more than this layer's "
               "threshold[ of {fact:threshold}]", "!recomputed"),
        Reason("the query of its first head has drifted[ by {drift:q0}], more than this layer's "
               "threshold[ of {fact:threshold}]"),
    )  # fmt: skip
    speedups = Speedups(static_rows=True)
    _reused_sites: ClassVar[tuple[str, ...]]

    qbar: float = knob(
        0.5,
        0.0,
        CAP,
        label="Reuse quantile",
        help="Share of the rows to reuse, as a mean over the layers of a calibration run; 0: none.",
        search=(0.25, 0.5, 0.75, 0.9),
    )
    temperature: float = knob(
        0.1,
        0.001,
        100.0,
        label="Allocation temperature",
        help="Low: layers with little drift reuse far more rows; high: all layers reuse alike.",
        search=(0.1, 1.0),
    )
    skip_first_layers: int = knob(
        0,
        0,
        1024,
        label="Skip first layers",
        help="Number of first layers without reuse.",
        search=(0, 1, 2),
    )
    refresh_interval: int | None = knob(
        None,
        1,
        1024,
        label="Refresh interval",
        optional=True,
        help="Steps between refreshes, which reuse nothing; empty: only at the start and when the "
        "cache that DARE is stacked on refreshes.",
        search=(2, 4, 8, None),
    )
    ref: str = knob(
        "last_step",
        choices=("last_step", "anchor"),
        label="Compared with",
        help="The query that a row is compared with. last_step: that of the previous step, anchor: "
        "that of the last step that recomputed the row.",
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        self.thresholds: tuple[float, ...] = ()
        self.shares = np.zeros(0)
        self._assumed_share: float | None = None

    def begin_step(self, view: StepView) -> StepPlan:
        """Every row enters; a refresh comes at the start, with the cache beneath, or when due."""
        every = self.refresh_interval
        due = every is not None and view.step % every == 0
        self._refresh = not self._reuses or view.step == 0 or view.window_refreshed or due
        return StepPlan(kind="full" if self._refresh else "partial")

    def plan(self, layer: int, probe: LayerProbe) -> LayerPlan:
        """Recompute the rows whose query drifted by more than the layer's threshold."""
        if not self._reuses_in(layer):
            return LayerPlan()
        old = probe.cached("q0", probe.rows)
        if self._refresh or old is None:
            probe.keep("q0", probe.project_all()[0][:, :, 0])
            return LayerPlan()
        q0 = self._head0(probe)
        if self._assumed_share is not None:
            probe.keep("q0", q0)
            rows = _first_rows(probe, self._assumed_share)
            return _without_unread_keys(self._recomputing(rows, None), probe)
        moved = ~(probe.drift(q0, old) <= self.thresholds[layer])
        probe.keep("q0", torch.where(moved[..., None], q0, old) if self.ref == "anchor" else q0)
        rows, counts = marked_rows(moved, probe.rows)
        idle = ~moved.any(1) if min(counts) == 0 < max(counts) else None
        return _without_unread_keys(self._recomputing(rows, idle), probe)

    @classmethod
    def fitted_knobs(cls, profile: Callable[[str], DriftProfile]) -> list[dict[str, Scalar]]:
        """The mean share of rows whose query drifts by less than each of TOLERATED."""
        found = [1 - float(profile("q0").beyond(drift).mean()) for drift in TOLERATED]
        return [{"qbar": round(min(share, CAP), 3)} for share in found]

    def prepare(self, context: PolicyContext) -> None:
        """Get the thresholds from drifts measured under the cache beneath."""
        if self.qbar:
            self.set_profile(context.profile("q0"))

    def set_profile(self, profile: DriftProfile) -> None:
        """Derive the thresholds of all layers from measured drifts."""
        self.shares = allocate(profile.means, self.qbar, self.temperature)
        self.thresholds = thresholds(profile, self.shares)

    def sites(self, run: RunInfo) -> tuple[Site, ...]:
        """The compared queries and the reused sites; none if nothing is reused."""
        kept = (Site(name) for name in self._reused_sites)
        return (Site("q0", run.info.head_dim), *kept) if self.qbar else ()

    def start(self, run: RunInfo) -> None:
        """Raise ValueError if there is reuse and no thresholds were derived for this model."""
        super().start(run)
        layers = run.info.layers
        if self._assumed_share is not None:
            self.thresholds, self.shares = (0.0,) * layers, np.full(layers, self.qbar)
        if self.qbar and len(self.thresholds) != layers:
            raise ValueError(
                f"{self.name}.qbar: reuse needs drifts measured on this model's {layers} layers; "
                "prepare the policy first, or set it to 0"
            )
        self._reuses = any(map(self._reuses_in, range(layers)))

    @classmethod
    def exact(cls) -> Dare:
        """Nothing is reused."""
        return cls(qbar=0.0)

    def facts(self) -> dict[str, list[float]]:
        """Each layer's threshold (-1: no reuse) and the share of rows that it aims to reuse."""
        reusing = [self._reuses_in(layer) for layer in range(len(self.thresholds))]
        limits = np.where(reusing, self.thresholds, -1.0).tolist()
        return {"threshold": limits, "reuse": np.where(reusing, self.shares, 0.0).tolist()}

    def data_rows(self) -> DataRows | None:
        """The share of the rows whose query drifts beyond the threshold, in a layer that reuses."""
        if not self.qbar:
            return None
        return DataRows(
            "DARE recomputes the rows whose query drifts by more than a layer's threshold: a "
            "share of the rows of each layer that reuses",
            1 - self.qbar,
            "the share at which the thresholds aim, 1 - qbar; a run usually recomputes less",
        )

    def with_assumed_share(self, share: float) -> Dare:
        """The first rows are recomputed, as many as the share; no drift is compared."""
        found = copy.copy(self)
        found._assumed_share = share
        found.speedups = Speedups(static_rows=True, capture_key=lambda policy: (policy._refresh,))
        return found

    def _head0(self, probe: LayerProbe) -> Tensor:
        """Query of the first head of the active rows, [B, R, dh]."""
        raise NotImplementedError

    def _recomputing(self, rows: Rows, idle: Tensor | None) -> LayerPlan:
        """The plan that recomputes `rows`; sequences that are `idle` [B] have none."""
        raise NotImplementedError

    def _reuses_in(self, layer: int) -> bool:
        """Whether a layer may reuse anything."""
        if not self.qbar or layer < self.skip_first_layers:
            return False
        return self.thresholds[layer] > -math.inf


@dataclass
class DareKv(Dare):
    """Reuses K and V; all queries and outputs are computed, so that the drift costs nothing."""

    name = "dare_kv"
    title = "DARE-KV"
    summary = "Reuses keys and values of rows whose query has hardly drifted since the last step."
    _reused_sites = ("k", "v")

    def _head0(self, probe: LayerProbe) -> Tensor:
        return probe.project("q")[:, :, 0]

    def _recomputing(self, rows: Rows, idle: Tensor | None) -> LayerPlan:
        return LayerPlan(k=rows, v=rows, idle=idle)


@dataclass
class DareO(Dare):
    """Reuses the attention output; a reused row projects only the first head of its query."""

    name = "dare_o"
    title = "DARE-O"
    summary = "Reuses attention outputs of rows whose query has hardly drifted since the last step."
    _reused_sites = ("attn",)

    def _head0(self, probe: LayerProbe) -> Tensor:
        return probe.project("q", heads=slice(0, 1))[:, :, 0]

    def _recomputing(self, rows: Rows, idle: Tensor | None) -> LayerPlan:
        return LayerPlan(attn=rows, idle=idle)


def _without_unread_keys(plan: LayerPlan, probe: LayerProbe) -> LayerPlan:
    """The plan without the K and V that are neither stored nor read, if no row attends."""
    if not is_empty(plan.attn):
        return plan
    keeps = probe.store.keeps
    return replace(plan, k=plan.k if keeps("k") else NONE, v=plan.v if keeps("v") else NONE)


def _first_rows(probe: LayerProbe, share: float) -> Rows:
    """The first rows of those that entered a layer, as many as `share` of them."""
    if isinstance(probe.rows, Tensor):
        return probe.rows[:, : round(share * probe.rows.shape[1])]
    start = probe.rows.start if isinstance(probe.rows, slice) else 0
    return slice(start, start + round(share * count(probe.rows, probe.length)))
