"""dLLM-Cache: long prompt intervals, short response intervals, V-verify (arXiv 2506.06295)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from engine.cache.base import CachePolicy, LayerPlan, LayerProbe, RunInfo, StepPlan, StepView, drift
from engine.cache.selection import share, top_drift
from engine.cache.store import Site
from engine.config.knobs import knob
from engine.core.regions import due, kept, renews
from engine.core.rows import ALL, Rows

NONE = slice(0, 0)
GUIDED = 5


@dataclass
class DllmCache(CachePolicy):
    """The four cases of Algorithm 1, in the phase of the released code (step 0 is full)."""

    name = "dllm_cache"
    title = "dLLM-Cache"
    paper = "arXiv 2506.06295"
    summary = "Renews the prompt rarely, the answer often, and in between what moved most."

    prompt_interval: int | None = knob(
        25, 1, 1024, optional=True, help="Prompt rows are renewed every so many steps."
    )
    response_interval: int | None = knob(
        5, 1, 1024, optional=True, help="Answer rows are renewed every so many steps."
    )
    recompute_ratio: float = knob(
        0.25, 0.0, 1.0, help="Share of the answer renewed in the steps between."
    )
    selector: str = knob(
        "v_cos",
        choices=("v_cos", "k_cos", "v_l2", "random"),
        help="How the rows that moved most are found.",
    )
    layer0_dense: bool = knob(True, help="Layer 0 is always recomputed, as released.")
    case2: str = knob(
        "code",
        choices=("code", "paper"),
        help="At a prompt renewal: code also renews the drifted rows of the answer.",
    )
    ref: str = knob(
        "last_step",
        choices=("last_step", "last_update"),
        help="What V is compared with: the step before, or the row's last renewal.",
    )

    cfg_interval: int = knob(
        1,
        1,
        1024,
        label="CFG interval",
        help="With guidance: its second branch is computed in the first five steps and every so "
        "many after them.",
    )

    def sites(self, run: RunInfo) -> tuple[Site, ...]:
        """K, V and both branch outputs; the compared activation where it is not V itself."""
        kept = tuple(Site(name) for name in ("k", "v", "attn", "ffn"))
        extra = (Site("v_ref", run.info.d_kv, _first(run)),) if self._separate else ()
        return kept + extra

    def start(self, run: RunInfo) -> None:
        """Note the regions."""
        super().start(run)
        self.static_rows = not run.guided or self.cfg_interval == 1
        first = _first(run)
        self._prompt, self._response = slice(0, first), slice(first, run.length)
        self._noise = [torch.Generator().manual_seed(row) for row in range(run.batch)]

    def begin_step(self, view: StepView) -> StepPlan:
        """Which regions are due; the prompt's rows go on past layer 0 only where it is."""
        self._renew_prompt = due(view.step, self.prompt_interval)
        self._renew_response = due(view.step, self.response_interval)
        full = self._renew_prompt and self._renew_response
        idle = not (self._renew_prompt or self._renew_response or self.recompute_ratio)
        output_rows = None if self._renew_prompt else self._response
        kind = "full" if full else "reuse" if idle else "partial"
        return StepPlan(kind=kind, output_rows=output_rows)

    def capture_key(self) -> tuple[object, ...] | None:
        """Which regions are due; a random selection draws numbers."""
        if self.selector == "random":
            return None
        return self._renew_prompt, self._renew_response

    def planned(self, view: StepView) -> tuple[str, str, str]:
        """Prompt and answer by their intervals; a dense first layer renews some of both."""
        ratio, left = self.recompute_ratio, view.steps_left
        prompt = kept(renews(view.step, self.prompt_interval, left))
        again = renews(view.step, self.response_interval, left)
        answer = kept(again or (ratio > 0 and left > 0))
        if self.layer0_dense:
            prompt = answer = "partial"
        if ratio and not (self._renew_prompt and self.case2 == "paper"):
            answer = "full" if ratio == 1 else "partial"
        prompt = "full" if self._renew_prompt else prompt
        answer = "full" if self._renew_response else answer
        return prompt, answer, answer

    def facts(self) -> dict[str, list[float]]:
        """The share of the answer renewed between its intervals."""
        layers = self.run.info.layers
        first = 1.0 if self.layer0_dense else self.recompute_ratio
        return {"budget": [first, *[self.recompute_ratio] * (layers - 1)]}

    def guides(self, step: int) -> bool:
        """The first five steps and every `cfg_interval` after them (released code)."""
        return step < GUIDED or step % self.cfg_interval == 0

    def confidence_mask(self, step: int, masked: np.ndarray, block: slice) -> np.ndarray | None:
        """All masks at a step whose guidance later steps will use."""
        used_later = self.guides(step) and not self.guides(step + 1)
        return masked if self.run.guided and used_later else None

    def plan(self, layer: int, probe: LayerProbe) -> LayerPlan:
        """Cases 1 to 4."""
        if (self._renew_prompt and self._renew_response) or (layer == 0 and self.layer0_dense):
            self._note(probe, self._response)
            return LayerPlan()
        if self._renew_response:
            self._note(probe, self._response)
            return LayerPlan(*[self._response] * 4)
        if not self.recompute_ratio or (self._renew_prompt and self.case2 == "paper"):
            return LayerPlan(*[self._prompt if self._renew_prompt else NONE] * 4)
        chosen = self._select(probe)
        self._note(probe, chosen)
        if not self._renew_prompt:
            return LayerPlan(k=chosen, v=self._response, attn=chosen, ffn=chosen)
        prompt = torch.arange(self._prompt.stop, device=chosen.device)
        rows = torch.cat((prompt.expand(len(chosen), -1), chosen), 1)
        return LayerPlan(k=rows, v=ALL, attn=rows, ffn=rows)

    @property
    def _separate(self) -> bool:
        return self.ref == "last_update"

    def _select(self, probe: LayerProbe) -> Tensor:
        """Global rows [B, k] of the answer that moved most, ascending."""
        rows = self._response.stop - self._response.start
        count = share(self.recompute_ratio, rows)
        if self.selector == "random":
            moved = torch.stack([torch.rand(rows, generator=g) for g in self._noise])
            return top_drift(moved.to(probe.h.device), count, self._response.start)
        name = "k" if self.selector == "k_cos" else "v"
        new = probe.project(name, self._response).flatten(2)
        if self._separate and name == "v":
            old = probe.cached("v_ref", self._response)
        else:
            kept = probe.cached(name, self._response)
            old = None if kept is None else kept.transpose(1, 2).flatten(2)
        assert old is not None, "the first step is full"
        moved = (new - old).norm(dim=-1) if self.selector == "v_l2" else drift(new, old)
        return top_drift(moved, count, self._response.start)

    def _note(self, probe: LayerProbe, rows: Rows) -> None:
        if self._separate:
            probe.keep("v_ref", probe.project("v", rows).flatten(2), rows)

    @classmethod
    def exact(cls) -> DllmCache:
        """Both regions renewed in every step."""
        return cls(prompt_interval=1, response_interval=1)


def _first(run: RunInfo) -> int:
    """First row of the answer's region: the row that predicts its first token."""
    return max(run.prompt_length - run.info.logit_shift, 0)
