"""SPA-Cache: low-rank proxies of V choose the rows to recompute (arXiv 2602.02544).

Where the paper is silent this follows the released code: the store keeps the sum of both branches,
so that a row that is not chosen still changes with its residual stream, and regions are refreshed
at intervals.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from torch import Tensor

from engine.cache.base import (
    CachePolicy,
    Kinds,
    LayerPlan,
    LayerProbe,
    ModelInfo,
    PolicyContext,
    RunInfo,
    Speedups,
    StepPlan,
    StepView,
)
from engine.cache.calibration.drift_profile import DriftProfile
from engine.cache.calibration.layer_budget import (
    DRIFTED,
    PRESETS,
    Curve,
    adapt,
    check_below_peak,
    fit,
    preset,
)
from engine.cache.calibration.singular_proxy import Proxy, compute_proxy, load_or_compute
from engine.cache.selection import ranks, share
from engine.cache.store import Site
from engine.config.knobs import Scalar, knob
from engine.core.device import upload
from engine.core.reasons import Reason
from engine.core.regions import is_refresh_step, refreshes_within, reuse_kind
from engine.core.rows import ALL, local_rows, take

PEAKS = (0.0625, 0.125, 0.25, 0.5)  # heights at which a fitted curve is searched
PROJECTED = {"query": "q", "key": "k"}
RECORDED = {"key": "k", "attn_out": "attn"}  # compared values whose drift is recorded as it is
COMPARED = {
    "value": "the low-rank projection of V",
    "query": "the query",
    "key": "the key",
    "input": "the input",
    "attn_out": "the attention output",
}


def _selected(kv_mode: str, identifier: str, name: str) -> tuple[Reason, Reason]:
    """Why a row was chosen, and why another was not."""
    share = "{share:ffn:answer}" if kv_mode == "dense" else "{share:ffn}"
    own = RECORDED.get(identifier)
    moved = (
        f"[ ({{cut:{own}:ffn}})]" if own else "[ (V itself by {drift:v})][, {rank:v} by V itself]"
    )
    among = (
        f"among the {share} that drifted most in layer {{layer}}{moved}"
        "[, the budget of the layer being {percent:budget}]"
    )
    when = f"kv_mode={kv_mode} identifier={identifier}"
    return (
        Reason(f"measured by {name}, the row is {among}", f"recomputed:ffn {when}"),
        Reason(f"measured by {name}, the row is not {among}", when),
    )


@dataclass
class SpaCache(CachePolicy):
    """Algorithm 1, with the refreshes of the released code.

    Between refreshes, rows are chosen among those of the answer and the row that predicts its first
    token (`kv_mode` dense), or among all rows (sparse).
    """

    name = "spa_cache"
    title = "SPA-Cache"
    paper = "arXiv 2602.02544"
    summary = (
        "Recomputes the rows whose low-rank projection of V drifted most, by a budget for each "
        "layer."
    )
    reasons = (
        Reason("the first step of a run recomputes every row", "first_step"),
        Reason("this step refreshes every row: it belongs to the warm-up, or a refresh is due"
               "[ {every:refresh_interval}]", "full !warm_up=0"),
        Reason("this step refreshes every row[, as is done {every:refresh_interval}]", "full"),
        Reason("the prompt is only recomputed when every row is refreshed[, "
               "{every:refresh_interval}]; {refreshes}", "prompt reused kv_mode=dense"),
        *(Reason("this step recomputes every row of the answer", f"answer refresh peak_ratio={one}")
          for one in ("1", "1.0")),
        Reason("the answer is refreshed {every:response_interval}, and this step is one of them; "
               "{refreshes}", "answer refresh"),
        Reason("this step refreshes the answer, and no row of the prompt; {refreshes}",
               "prompt reused refresh:block kv_mode=sparse"),
        Reason("layer 1 is recomputed for every row that enters the step",
               "first_layer recomputed kv_mode=dense"),
        *(reason for mode in ("dense", "sparse") for one in COMPARED.items()
          for reason in _selected(mode, *one)),
    )  # fmt: skip
    speedups = Speedups(
        static_rows=True, capture_key=lambda policy: (policy._full, policy._refresh_answer)
    )

    refresh_interval: int | None = knob(
        50, 1, 1024, optional=True,
        help="Steps between refreshes of every row; empty: only at the start.",
        search=(16, 50, None),
    )  # fmt: skip
    response_interval: int | None = knob(
        7, 1, 1024, optional=True,
        help="Steps between refreshes of the answer; empty: only with every row.",
        search=(2, 4, 7, 16),
    )  # fmt: skip
    warm_up: int = knob(
        0,
        0,
        1024,
        label="Warm-up",
        help="Number of steps after the first that also refresh every row.",
    )
    budget: str = knob(
        "preset",
        choices=("preset", *PRESETS, "uniform", "fitted"),
        help="How the recomputed share varies over the layers. preset: as published for the "
        "model's family, a family's name: as published for that one, uniform: the same in all "
        "layers, fitted: fitted to drifts measured on this checkpoint.",
        search=("preset", "uniform", "fitted"),
    )
    peak_ratio: float | None = knob(
        0.25, 0.001, 1.0, optional=True,
        help="Share of the rows recomputed in the layer with the largest share; the other layers "
        "scale with it. Empty: by the budget.",
        search=PEAKS,
    )  # fmt: skip
    first_ratio: float | None = knob(
        None, 0.001, 1.0, optional=True,
        help="Share of the rows recomputed in the first layer; empty: by the budget.",
    )  # fmt: skip
    last_ratio: float | None = knob(
        None, 0.001, 1.0, optional=True,
        help="Share of the rows recomputed in the last layer; empty: by the budget.",
    )  # fmt: skip
    min_update_ratio: float = knob(
        0.0,
        0.0,
        1.0,
        help="Least share of the rows recomputed in the layers up to the peak; 0: as the budget "
        "gives it.",
    )
    peak_position: float | None = knob(
        None, 0.0, 1.0, optional=True,
        help="Layer of the peak, as a share of the depth: 0 is the first layer, 1 the last; empty: "
        "by the budget.",
    )  # fmt: skip
    identifier: str = knob(
        "value",
        choices=("value", "query", "key", "input", "attn_out"),
        help="What is compared with the previous step; value: the low-rank projection of V; "
        "attn_out: attention is computed for all rows, and only the feed-forward is saved.",
    )
    rank: int | None = knob(
        None, 1, 8192, optional=True,
        help="Width of the low-rank projection; empty: an eighth of V's width, at most 128.",
    )  # fmt: skip
    proxy_bias: bool = knob(
        True, help="Include V's bias in the low-rank projection, if the model has one."
    )
    kv_mode: str = knob(
        "dense",
        choices=("dense", "sparse"),
        label="Keys and values",
        help="Keys and values that are recomputed. dense: those of the whole answer in every step, "
        "and of the prompt only at refreshes; sparse: those of the chosen rows, out of prompt and "
        "answer.",
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.peak_ratio is not None:
            check_below_peak(self._bounded, self.peak_ratio)
        self._proxies: dict[int, Proxy] = {}
        self._fitted: Curve | None = None

    def begin_step(self, view: StepView) -> StepPlan:
        """All rows at a refresh, those of the answer at its refresh; else the candidates."""
        self._full = view.step <= self.warm_up or is_refresh_step(view.step, self.refresh_interval)
        self._refresh_answer = self._full or is_refresh_step(view.step, self.response_interval)
        if self._full:
            return StepPlan()
        answer_only = self._refresh_answer or self._dense
        return StepPlan(rows=self._answer if answer_only else ALL, kind="partial")

    def plan(self, layer: int, probe: LayerProbe) -> LayerPlan:
        """Every row at a refresh and in a dense first layer, else those that drifted most."""
        if layer == 0 and self._dense:
            return LayerPlan()
        if self.identifier == "attn_out":
            if self._refresh_answer:
                return LayerPlan()
            old = probe.cached("attn", probe.rows)
            assert old is not None, "the first step is full"
            return LayerPlan(ffn=self._select(probe, probe.drift(probe.attn(LayerPlan()), old)))
        region = self._answer if isinstance(probe.rows, slice) else self._candidates
        new = probe.compared(self._identify(probe, region))
        if self._refresh_answer:
            probe.keep("proxy", new, region)
            return LayerPlan()
        chosen = self._select(probe, probe.replace_compared("proxy", new, region))
        kv = ALL if self._dense else chosen
        return LayerPlan(k=kv, v=kv, attn=chosen, ffn=chosen)

    def prepare(self, context: PolicyContext) -> None:
        """Get the proxies and, if the budget is fitted, fit it to the checkpoint's drifts."""
        if self.identifier == "value":
            self._proxies = dict(
                enumerate(load_or_compute(context, self._width(context.adapter.info)))
            )
        if self.budget == "fitted":
            self._fitted = fit(context.profile("v").beyond(DRIFTED))

    @classmethod
    def fitted_knobs(cls, profile: Callable[[str], DriftProfile]) -> list[dict[str, Scalar]]:
        """The curve over the layers that fits the drifts of V, with its own peak and two others."""
        curve = fit(profile("v").beyond(DRIFTED))
        peaks = sorted({curve.peak, *(peak for peak in PEAKS if peak < curve.peak)})
        curves = [curve.scaled(peak) for peak in peaks]
        return [
            {
                "peak_position": round(one.position, 4), "first_ratio": max(one.first, 0.001),
                "peak_ratio": one.peak, "last_ratio": max(one.last, 0.001),
            }
            for one in curves
        ]  # fmt: skip

    def sites(self, run: RunInfo) -> tuple[Site, ...]:
        """K and V; of the candidate rows the compared quantity and the sum of both branches."""
        start = self._candidate_rows(run).start
        outputs: tuple[Site, ...] = (Site("attn", start=start), Site("ffn", start=start))
        if self.identifier != "attn_out":
            outputs = (Site("proxy", self._width(run.info), start), Site("branch", start=start))
        return Site("k"), Site("v"), *outputs

    def start(self, run: RunInfo) -> None:
        """Derive the number of rows of each layer; ValueError names an impossible knob."""
        if getattr(self, "run", None) != run:  # else keep the tensors, which captured forwards use
            self._ranks: dict[int, Tensor] = {}
        super().start(run)
        self._candidates, shift = self._candidate_rows(run), run.info.logit_shift
        self._answer = slice(max(run.prompt_length - shift, 0), run.length)
        padding = run.padding if self._candidates.start == 0 else ()
        self._skipped = padding or (0,) * run.batch
        free = [self._candidates.stop - self._candidates.start - n for n in self._skipped]
        self._counts = [[share(ratio, n) for n in free] for ratio in self.ratios(run.info)]
        chosen = self._counts[1:] if self._dense else self._counts
        self._takes_all = all(counts == free for counts in chosen) and not any(self._skipped)

    def ratios(self, info: ModelInfo) -> tuple[float, ...]:
        """The share of rows recomputed in each layer, [layers]; ValueError names a knob."""
        if self.budget == "fitted":
            if self._fitted is None:
                raise ValueError(
                    "spa_cache.budget: fitted needs drifts measured on this model; prepare the "
                    "policy first, or choose another budget"
                )
            curve = self._fitted
        else:
            curve = PRESETS.get(self.budget) or preset(info.family)
        check_below_peak(self._bounded, self.peak_ratio or curve.peak)
        given = {"first": self.first_ratio, "last": self.last_ratio, "position": self.peak_position}
        even = self.budget == "uniform"
        curve = adapt(curve, self.peak_ratio, even, given)
        return curve.ratios(info.layers, self.min_update_ratio)

    @classmethod
    def exact(cls) -> SpaCache:
        """Every row refreshed in every step."""
        return cls(refresh_interval=1)

    def planned(self, view: StepView, plan: StepPlan) -> Kinds:
        """Prompt and answer by their intervals; in between the chosen candidates."""
        if self._full:
            return super().planned(view, plan)
        answer = "full" if self._refresh_answer or self._takes_all else "partial"
        if not self._dense and not self._refresh_answer:
            return answer, answer, answer
        left = view.steps_left
        chosen_later = not self._dense and self.response_interval != 1 and left > 0
        again = chosen_later or refreshes_within(view.step, self.refresh_interval, left)
        return reuse_kind(again), answer, answer

    def facts(self) -> dict[str, list[float]]:
        """The share of rows recomputed in each layer between refreshes."""
        first, *others = self.ratios(self.run.info)
        return {"budget": [1.0 if self._dense else first, *others]}

    @property
    def _bounded(self) -> dict[str, float | None]:
        """The knobs that must not exceed the peak."""
        names = ("first_ratio", "last_ratio", "min_update_ratio")
        return {name: getattr(self, name) for name in names}

    @property
    def _dense(self) -> bool:
        return self.kv_mode == "dense"

    def _candidate_rows(self, run: RunInfo) -> slice:
        """The candidate rows, among which rows are chosen."""
        start = max(run.prompt_length - run.info.logit_shift, 0) if self._dense else 0
        return slice(start, run.length)

    def _width(self, info: ModelInfo) -> int:
        """Width of the compared quantity; ValueError if the rank exceeds V's width."""
        if self.identifier != "value":
            return {"query": info.d_q, "key": info.d_kv}.get(self.identifier, info.d_model)
        if self.rank is not None and self.rank > info.d_kv:
            raise ValueError(
                f"spa_cache.rank: {self.rank} exceeds the width of the model's V; lower it to at "
                f"most {info.d_kv}"
            )
        return self.rank or max(1, min(128, info.d_kv // 8))

    def _identify(self, probe: LayerProbe, region: slice) -> Tensor:
        """The compared quantity at the rows of `region`, [B, n, width]."""
        if self.identifier in PROJECTED:
            if self._refresh_answer:
                probe.project_all()
            new = probe.project(PROJECTED[self.identifier]).flatten(2)
            return take(new, local_rows(probe.rows, region))
        x = probe.gather(probe.normed, region)
        if self.identifier == "input":
            return x
        if probe.layer not in self._proxies:
            proxy = compute_proxy(probe.adapter, probe.layer, self._width(probe.adapter.info))
            self._proxies[probe.layer] = proxy.like(x)
        new = self._proxies[probe.layer](x, self.proxy_bias)
        probe.counter.select(probe.layer, 2 * probe.h.shape[-1] * new.numel())
        return new

    def _select(self, probe: LayerProbe, drifts: Tensor) -> Tensor:
        """The rows [B, k] of largest `drifts` [B, n], ties to the lower, as ascending global rows.

        Padding is never chosen.
        """
        layer, first = probe.layer, self._candidates.start
        counts = self._counts[layer]
        if not any(self._skipped):
            return probe.top_drift(drifts, counts[0], first)
        if layer not in self._ranks:
            self._ranks[layer] = ranks(counts, drifts.device)
            pads = np.arange(drifts.shape[1]) < np.array(self._skipped)[:, None]
            self._pads = upload(pads, drifts.device)
        return probe.top_drift(drifts.masked_fill(self._pads, -1.0), self._ranks[layer], first)
