"""DARE: a row is reused while head 0 of its query has hardly moved (arXiv 2605.08134).

The formulas are reconstructed from the paper's words and tables, since its code was not to be had:

- drift: 1 - cosine of a row's head-0 query between two steps;
- layer drift S: its mean over the steps and rows of a calibration run;
- reuse quantiles: q = layers * qbar * softmax(-S / temperature), the closed form of MoDeGPT's
  allocation of sparsity, whose mean is qbar; the cap at 0.95 is ours, for the paper's form may
  exceed 1;
- threshold: the quantile q of the layer's calibration drifts; the floor of 1e-5 is ours, for rows
  whose query should not have moved and did by rounding.

The calibration runs the cache that DARE stands on, without reuse. Reuse itself makes rows drift
less, so the share that is reused comes out above qbar. In layer 0 a query depends on the token
alone: reused there, the attention outputs of all unchanged tokens stand still, with them the input
of layer 1, and so on up. DARE-O therefore skips the first layers, how many the paper's text lost;
on the embedded model 0 costs most answers, 1 some, 2 none.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from engine.cache.base import (
    CachePolicy,
    LayerPlan,
    LayerProbe,
    PolicyContext,
    RunInfo,
    StepPlan,
    StepView,
    drift,
)
from engine.cache.calibration.drift_profile import DriftProfile
from engine.cache.calibration.thresholds import CAP, allocate, thresholds
from engine.cache.selection import marked
from engine.cache.store import Site
from engine.config.knobs import knob
from engine.core.rows import Rows, put, take


def _skipped(default: int) -> Any:
    return knob(
        default, 0, 1024, label="Skip first layers", help="So many first layers reuse nothing."
    )


@dataclass
class Dare(CachePolicy):
    """What both forms share: the drift, the thresholds and the count of a row's reuses."""

    paper = "arXiv 2605.08134"
    static_rows = True
    stackable_on = ("none", "prefix", "dual", "freecache")
    _reused: ClassVar[tuple[str, ...]]

    qbar: float = knob(
        0.5,
        0.0,
        CAP,
        label="Reuse quantile",
        help="Share of the rows to reuse, as a mean over the layers of a calibration run; "
        "0: nothing is reused.",
    )
    temperature: float = knob(
        0.1,
        0.001,
        100.0,
        label="Allocation temperature",
        help="Low: steady layers reuse far more rows than restless ones; high: all alike.",
    )
    skip_first_layers: int = _skipped(0)
    refresh_interval: int | None = knob(
        None,
        1,
        1024,
        label="Refresh interval",
        optional=True,
        help="Nothing is reused every so many steps; empty: only where the run or the cache "
        "beneath begins anew.",
    )
    ref: str = knob(
        "last_step",
        choices=("last_step", "anchor"),
        label="Compared with",
        help="A row's query is compared with the step before, or with its last renewal.",
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        self.thresholds: tuple[float, ...] = ()
        self.shares = np.zeros(0)

    def prepare(self, context: PolicyContext) -> None:
        """Get the thresholds from the drifts of the cache beneath."""
        if self.qbar:
            self.set_profile(context.profile("q0"))

    def set_profile(self, profile: DriftProfile) -> None:
        """Derive the thresholds of all layers from measured drifts."""
        self.shares = allocate(profile.means, self.qbar, self.temperature)
        self.thresholds = thresholds(profile, self.shares)

    def sites(self, run: RunInfo) -> tuple[Site, ...]:
        """The queries compared with and what is reused; nothing where nothing is reused."""
        kept = (Site(name) for name in self._reused)
        return (Site("q0", run.info.head_dim), *kept) if self.qbar else ()

    def start(self, run: RunInfo) -> None:
        """Check the thresholds; ValueError where reuse is wanted and nothing was measured."""
        super().start(run)
        layers = run.info.layers
        if self.qbar and len(self.thresholds) != layers:
            raise ValueError(
                f"{self.name}.qbar: reuse needs drifts measured on this model's {layers} layers; "
                "prepare the policy first, or set it to 0"
            )
        self._ages: dict[int, Tensor] = {}
        self._reuses = np.zeros((layers, 2), np.int64)

    def begin_step(self, view: StepView) -> StepPlan:
        """Every row; all are renewed at the start, where the cache beneath is, and when due."""
        every = self.refresh_interval
        due = every is not None and view.step % every == 0
        self._renew = not self.qbar or view.step == 0 or view.renewal or due
        return StepPlan(kind="full" if self._renew else "partial")

    def plan(self, layer: int, probe: LayerProbe) -> LayerPlan:
        """Rows whose query moved by more than the layer's threshold."""
        if not self._reuses_in(layer):
            return LayerPlan()
        old = probe.cached("q0", probe.rows)
        if self._renew or old is None:
            probe.keep("q0", probe.project_all()[0][:, :, 0])
            self._age(probe, None)
            return LayerPlan()
        q0 = self._head0(probe)
        moved = ~(drift(q0, old) <= self.thresholds[layer])
        probe.keep("q0", torch.where(moved[..., None], q0, old) if self.ref == "anchor" else q0)
        self._age(probe, moved)
        rows, counts = marked(moved, probe.rows)
        self._reuses[layer, 0] += moved.numel() - sum(counts)
        return self._renewing(rows, ~moved.any(1) if min(counts) == 0 < max(counts) else None)

    def planned(self, view: StepView) -> tuple[str, str, str]:
        """Everything where all is renewed, else what moved."""
        return super().planned(view) if self._renew else ("partial", "partial", "partial")

    def facts(self) -> dict[str, list[float]]:
        """Each layer's threshold (-1: nothing is reused) and the share of rows that it aims at."""
        reusing = [self._reuses_in(layer) for layer in range(len(self.thresholds))]
        limits = np.where(reusing, self.thresholds, -1.0).tolist()
        return {"threshold": limits, "reuse": np.where(reusing, self.shares, 0.0).tolist()}

    def staleness(self, layer: int) -> Tensor:
        """Steps in a row in which each row was reused, [B, T] int32; 0 where it was renewed."""
        if layer not in self._ages:
            return torch.zeros(self.run.batch, self.run.length, dtype=torch.int32)
        return self._ages[layer]

    @property
    def reuse_shares(self) -> np.ndarray:
        """Share of the rows that entered each layer so far which were reused, [layers]."""
        return self._reuses[:, 0] / np.maximum(self._reuses[:, 1], 1)

    def _head0(self, probe: LayerProbe) -> Tensor:
        """Head 0 of the active rows' queries, [B, R, dh]."""
        raise NotImplementedError

    def _renewing(self, rows: Rows, idle: Tensor | None) -> LayerPlan:
        """The plan that renews `rows`; sequences that are `idle` [B] have none."""
        raise NotImplementedError

    def _reuses_in(self, layer: int) -> bool:
        """Whether a layer may reuse anything."""
        if not self.qbar or layer < self.skip_first_layers:
            return False
        return self.thresholds[layer] > -math.inf

    def _age(self, probe: LayerProbe, moved: Tensor | None) -> None:
        """Count a reuse of every active row but those that moved (None: all are renewed)."""
        batch, active = probe.h.shape[:2]
        if probe.layer not in self._ages:
            shape = (batch, probe.length)
            self._ages[probe.layer] = torch.zeros(shape, dtype=torch.int32, device=probe.h.device)
        ages = self._ages[probe.layer]
        older = take(ages, probe.rows) + 1
        put(ages, probe.rows, torch.zeros_like(older) if moved is None else older * ~moved)
        self._reuses[probe.layer, 1] += batch * active

    @classmethod
    def exact(cls) -> Dare:
        """Nothing is reused."""
        return cls(qbar=0.0)


@dataclass
class DareKv(Dare):
    """Reuses K and V; every query and every output is computed, so the drift costs nothing."""

    name = "dare_kv"
    title = "DARE-KV"
    summary = "Keeps keys and values of rows whose query has hardly moved since the last step."
    _reused = ("k", "v")

    def _head0(self, probe: LayerProbe) -> Tensor:
        return probe.project("q")[:, :, 0]

    def _renewing(self, rows: Rows, idle: Tensor | None) -> LayerPlan:
        return LayerPlan(k=rows, v=rows, idle=idle)


@dataclass
class DareO(Dare):
    """Reuses the attention output; of the rows that are reused only head 0 is projected."""

    name = "dare_o"
    title = "DARE-O"
    summary = "Keeps attention outputs of rows whose query has hardly moved since the last step."
    _reused = ("attn",)

    skip_first_layers: int = _skipped(2)

    def _head0(self, probe: LayerProbe) -> Tensor:
        return probe.project("q", heads=slice(0, 1))[:, :, 0]

    def _renewing(self, rows: Rows, idle: Tensor | None) -> LayerPlan:
        return LayerPlan(attn=rows, idle=idle)
