"""dLLM-Cache: long prompt intervals, short response intervals, V-verify (arXiv 2506.06295)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from engine.cache.base import (
    CachePolicy,
    Kinds,
    LayerPlan,
    LayerProbe,
    RunInfo,
    Speedups,
    StepPlan,
    StepView,
)
from engine.cache.selection import share
from engine.cache.store import Site
from engine.config.knobs import knob
from engine.core.device import upload
from engine.core.reasons import Reason
from engine.core.regions import is_refresh_step, refreshes_within, reuse_kind
from engine.core.rows import ALL, NONE, Rows, local_rows, take

GUIDED_STEPS = 5
TIMES = "; the whole answer is refreshed[ {every:response_interval}], {refreshes}"
COMPARED = {
    "v_cos": "its V has drifted[ by {drift:v}], ",
    "k_cos": "its K has drifted[ by {drift:k}], ",
    "v_l2": "its V has moved, ",
}
COMPARED_SITES = {"v_cos": "v", "k_cos": "k", "v_l2": "v"}


def _selected(selector: str, change: str) -> tuple[Reason, Reason]:
    """Why a row was chosen, and why another was not."""
    compared = {"v_cos": "v", "k_cos": "k"}.get(selector)
    cut = f"[ ({{cut:{compared}:ffn}})]" if compared else ""
    among = (
        f"among the {{share:ffn:answer}} of the answer that changed most in layer {{layer}}{cut}"
        f"{TIMES}"
    )
    when = f"selector={selector}"
    return Reason(change + among, f"recomputed {when}"), Reason(f"{change}not {among}", when)


def _since_update(selector: str, site: str) -> tuple[Reason, Reason]:
    """The same for a selector that compares with a row's last update, whose drift is not shown."""
    among = (
        f"among the {{share:ffn:answer}} of the answer whose {site.upper()} changed most in layer "
        f"{{layer}} since their last update{TIMES}"
    )
    when = f"selector={selector} ref=last_update"
    return Reason(f"the row is {among}", f"recomputed {when}"), Reason(f"it is not {among}", when)


def _refreshed(policy: DllmCache) -> tuple[object, ...]:
    """The regions that the current step refreshes."""
    return policy._refresh_prompt, policy._refresh_answer


@dataclass
class DllmCache(CachePolicy):
    """The four cases of Algorithm 1, in the phase of the released code (step 1 is full).

    Between refreshes a selector chooses k of the answer's G rows. Queries, attention and the
    feed-forward are computed for the chosen rows; which of K and V are computed for all G rows
    depends on the selector:

    - `v_cos`, `v_l2`: V of G rows, K of k rows;
    - `k_cos`: K of G rows, V of k rows. K and V are equally wide, so the FLOPs are those of
      `v_cos`;
    - `random`: K and V of k rows, which saves 2 (G - k) d_model d_kv FLOPs in each layer.

    What is computed is stored, so the K or V that a selector compares is always that of the
    previous step. When only the prompt is refreshed (`case2`), its rows are added to each of these.
    """

    name = "dllm_cache"
    title = "dLLM-Cache"
    paper = "arXiv 2506.06295"
    summary = "Refreshes the prompt rarely, the answer often, and in between what changed most."
    reasons = (
        Reason("the first step of a run recomputes every row", "first_step"),
        Reason("the prompt is refreshed {every:prompt_interval}, and this step is one of them; "
               "{refreshes}", "prompt refresh"),
        Reason("layer 1 is recomputed for every row in every step",
               "prompt recomputed"),
        Reason("the prompt is refreshed[ {every:prompt_interval}]; {refreshes}", "prompt"),
        *(Reason("with an update ratio of 1 this step recomputes every row of the answer",
                 f"refresh recompute_ratio={one}") for one in ("1", "1.0")),
        *(Reason("this step refreshes the prompt alone; with an update ratio of 1 all other steps "
                 "recompute every row of the answer",
                 f"answer reused refresh:prompt recompute_ratio={one}") for one in ("1", "1.0")),
        Reason("every row of the answer is recomputed in this step" + TIMES, "refresh"),
        Reason("layer 1 is recomputed for every row in every step" + TIMES,
               "first_layer recomputed layer0_dense=true"),
        Reason("no row of the answer is recomputed between its refreshes" + TIMES,
               "reused no:budget"),
        Reason("no row of the answer is recomputed in a step that refreshes the prompt alone"
               + TIMES, "reused refresh:prompt case2=paper"),
        Reason("the row was drawn at random, with {share:ffn:answer} of the answer" + TIMES,
               "recomputed selector=random"),
        Reason("the row was not drawn at random among {share:ffn:answer} of the answer" + TIMES,
               "selector=random"),
        *(reason for one in COMPARED_SITES.items() for reason in _since_update(*one)),
        *(reason for one in COMPARED.items() for reason in _selected(*one)),
    )  # fmt: skip
    speedups = Speedups(static_rows=True, capture_key=_refreshed)

    prompt_interval: int | None = knob(
        25,
        1,
        1024,
        label="Prompt refresh interval (Kp)",
        optional=True,
        help="Steps between refreshes of the prompt; empty: only at the start.",
        search=(10, 25, 50, 100, None),
    )
    response_interval: int | None = knob(
        5,
        1,
        1024,
        label="Answer refresh interval (Kr)",
        optional=True,
        help="Steps between refreshes of the answer; empty: only at the start.",
        search=(2, 3, 5, 8, 16),
    )
    recompute_ratio: float = knob(
        0.25,
        0.0,
        1.0,
        label="Update ratio (ρ)",
        help="Share of the answer recomputed in the steps between its refreshes.",
        search=(0.0, 0.125, 0.25, 0.5),
    )
    selector: str = knob(
        "v_cos",
        choices=("v_cos", "k_cos", "v_l2", "random"),
        help="How rows are chosen: by the cosine of V or of K with its reference, by the distance "
        "of V, or at random. The compared V or K is computed for the whole answer, the other for "
        "the chosen rows; random computes both for the chosen rows alone.",
    )
    layer0_dense: bool = knob(
        True,
        label="All rows of layer 1",
        help="Layer 1 (layer 0 in the code) recomputes all its rows in every step, as released.",
    )
    case2: str = knob(
        "code",
        choices=("code", "paper"),
        label="Answer when only the prompt is refreshed",
        help="Case 2 of the paper: steps that refresh the prompt but not the answer. code: the "
        "chosen rows of the answer are recomputed too, as in the released code; paper: they are "
        "not.",
    )
    ref: str = knob(
        "last_step",
        choices=("last_step", "last_update"),
        label="Compared with",
        help="What V or K is compared with: the previous step, or the last time that the row was "
        "recomputed. random compares nothing.",
    )

    cfg_interval: int = knob(
        1,
        1,
        1024,
        label="CFG interval",
        help="With classifier-free guidance: steps between computations of its unconditional "
        "branch; the first five steps all compute it.",
    )

    def begin_step(self, view: StepView) -> StepPlan:
        """All rows; beyond layer 1 those of the prompt only at its refresh."""
        self._refresh_prompt = is_refresh_step(view.step, self.prompt_interval)
        self._refresh_answer = is_refresh_step(view.step, self.response_interval)
        full = self._refresh_prompt and self._refresh_answer
        refresh = self._refresh_prompt or self._refresh_answer
        some = refresh or self.recompute_ratio > 0 or self.layer0_dense
        output_rows = None if self._refresh_prompt else self._answer
        kind = "full" if full else "partial" if some else "reuse"
        return StepPlan(kind=kind, output_rows=output_rows)

    def plan(self, layer: int, probe: LayerProbe) -> LayerPlan:
        """Cases 1 to 4."""
        if (self._refresh_prompt and self._refresh_answer) or (layer == 0 and self.layer0_dense):
            self._renew_reference(probe, ALL)
            return LayerPlan()
        if self._refresh_answer:
            self._renew_reference(probe, self._answer)
            return LayerPlan(*[self._answer] * 4)
        if not self.recompute_ratio or (self._refresh_prompt and self.case2 == "paper"):
            return LayerPlan(*[self._prompt if self._refresh_prompt else NONE] * 4)
        rows, compared = self._select(probe), self._compared_rows
        if self._refresh_prompt:
            prompt = torch.arange(self._prompt.stop, device=rows.device)
            rows = torch.cat((prompt.expand(len(rows), -1), rows), 1)
        k, v = (compared if name == self._compared_site else rows for name in "kv")
        return LayerPlan(k=k, v=v, attn=rows, ffn=rows)

    def sites(self, run: RunInfo) -> tuple[Site, ...]:
        """K, V and the sum of both branches; the reference if it is not of the previous step."""
        sites = tuple(Site(name) for name in ("k", "v", "branch"))
        extra = (Site("ref", run.info.d_kv, _first(run)),) if self._has_reference else ()
        return sites + extra

    def start(self, run: RunInfo) -> None:
        """Set the regions and what can be captured."""
        super().start(run)
        draws, skips = self.selector == "random", run.guided and self.cfg_interval > 1
        self.speedups = Speedups(static_rows=not skips, capture_key=None if draws else _refreshed)
        first = _first(run)
        self._prompt, self._answer = slice(0, first), slice(first, run.length)
        seeds = run.seeds or range(run.batch)
        self._noise = [torch.Generator().manual_seed(seed) for seed in seeds]

    def confidence_mask(
        self, step: int, masked: np.ndarray, undecided: np.ndarray, block: slice
    ) -> np.ndarray | None:
        """All masks at a step whose guidance later steps use."""
        used_later = self.guides(step) and not self.guides(step + 1)
        return undecided if self.run.guided and used_later else None

    def guides(self, step: int) -> bool:
        """The first five steps and every `cfg_interval` after them (released code)."""
        return step < GUIDED_STEPS or step % self.cfg_interval == 0

    @classmethod
    def exact(cls) -> DllmCache:
        """Both regions refreshed in every step."""
        return cls(prompt_interval=1, response_interval=1)

    def planned(self, view: StepView, plan: StepPlan) -> Kinds:
        """Prompt and answer by their intervals; a dense first layer recomputes part of both."""
        ratio, left = self.recompute_ratio, view.steps_left
        prompt = reuse_kind(refreshes_within(view.step, self.prompt_interval, left))
        again = refreshes_within(view.step, self.response_interval, left)
        answer = reuse_kind(again or (ratio > 0 and left > 0))
        if self.layer0_dense:
            prompt = answer = "partial"
        if ratio and not (self._refresh_prompt and self.case2 == "paper"):
            answer = "full" if ratio == 1 else "partial"
        prompt = "full" if self._refresh_prompt else prompt
        answer = "full" if self._refresh_answer else answer
        return prompt, answer, answer

    def facts(self) -> dict[str, list[float]]:
        """The share of the answer recomputed between its refreshes."""
        layers = self.run.info.layers
        first = 1.0 if self.layer0_dense else self.recompute_ratio
        return {"budget": [first, *[self.recompute_ratio] * (layers - 1)]}

    @property
    def _compared_site(self) -> str | None:
        """The site, `k` or `v`, that the selector compares; None: it compares nothing."""
        return COMPARED_SITES.get(self.selector)

    @property
    def _compared_rows(self) -> Rows:
        """The rows at which the compared site is computed in a step that selects rows."""
        return ALL if self._refresh_prompt else self._answer

    @property
    def _has_reference(self) -> bool:
        return self.ref == "last_update" and self._compared_site is not None

    def _select(self, probe: LayerProbe) -> Tensor:
        """Global rows [B, k] of the answer that changed most, ascending."""
        rows = self._answer.stop - self._answer.start
        count, site = share(self.recompute_ratio, rows), self._compared_site
        if site is None:
            noise = torch.stack([torch.rand(rows, generator=g) for g in self._noise])
            drawn = upload(noise.numpy(), probe.h.device)
            return probe.top_drift(drawn, count, self._answer.start)
        new = self._compared(probe, self._compared_rows)
        chosen = probe.top_drift(self._moved(probe, site, new), count, self._answer.start)
        if self._has_reference:
            probe.keep("ref", take(new, local_rows(self._answer, chosen)).flatten(2), chosen)
        return chosen

    def _moved(self, probe: LayerProbe, site: str, new: Tensor) -> Tensor:
        """How far the compared K or V `new` of the answer has moved, [B, G]."""
        if self.selector != "v_l2" and not self._has_reference:
            return probe.replace(site, new, self._answer)
        old = probe.cached("ref" if self._has_reference else site, self._answer)
        assert old is not None, "the first step is full"
        old = old.view_as(new) if self._has_reference else old.transpose(1, 2)
        distance = self.selector == "v_l2"
        return (new - old).flatten(2).norm(dim=-1) if distance else probe.drift(new, old)

    def _compared(self, probe: LayerProbe, computed: Rows) -> Tensor:
        """The compared K or V of the answer, [B, G, Hkv, dh], from that of the `computed` rows."""
        assert self._compared_site is not None
        probe.project(self._compared_site, computed)
        return probe.project(self._compared_site, self._answer)

    def _renew_reference(self, probe: LayerProbe, computed: Rows) -> None:
        """Keep the reference of the whole answer in a layer that recomputes the rows `computed`."""
        if self._has_reference:
            probe.keep("ref", self._compared(probe, computed).flatten(2), self._answer)


def _first(run: RunInfo) -> int:
    """First row of the answer's region: the row that predicts its first token."""
    return max(run.prompt_length - run.info.logit_shift, 0)
