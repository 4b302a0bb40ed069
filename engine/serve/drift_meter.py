"""calibration: how far each layer's rows drift when a few problems are decoded by a base cache."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from engine.cache.base import (
    CachePolicy,
    LayerPlan,
    LayerProbe,
    RunInfo,
    StepPlan,
    StepView,
    drift,
)
from engine.cache.calibration.drift_profile import BINS, DriftProfile, histogram
from engine.cache.store import Site
from engine.config.spec import RunSpec
from engine.generate.job import Job
from engine.generate.loop import Denoiser, denoise
from engine.tiny import corpus

PROBLEMS, SEED = 8, 2605
BASES = ("none", "prefix", "dual", "freecache")


@dataclass
class DriftMeter(CachePolicy):
    """Recomputes everything and notes how far head 0's queries, or V, moved since the last step."""

    quantity: str = "q0"
    stackable_on = BASES
    name = "meter"
    counts: list[np.ndarray] = field(default_factory=list)
    totals: list[float] = field(default_factory=list)

    def sites(self, run: RunInfo) -> tuple[Site, ...]:
        """The activation of the step before."""
        width = run.info.head_dim if self.quantity == "q0" else run.info.d_kv
        return (Site(self.quantity if self.quantity == "q0" else "v_last", width),)

    def begin_step(self, view: StepView) -> StepPlan:
        """Where the base renews itself nothing could be reused, so nothing is counted."""
        self._counting = not view.renewal
        return StepPlan()

    def plan(self, layer: int, probe: LayerProbe) -> LayerPlan:
        """Note the drifts; recompute every row."""
        if layer == len(self.counts):
            self.counts.append(np.zeros(BINS, np.int64))
            self.totals.append(0.0)
        if self.quantity == "q0":
            new, site = probe.project("q", heads=slice(0, 1)), "q0"
        else:
            new, site = probe.project("v"), "v_last"
        old = probe.swap(site, new.flatten(2))
        if old is not None and self._counting:
            moved = drift(new.flatten(2), old).clamp_min(0).cpu().numpy().astype(np.float64)
            self.counts[layer] += histogram(moved)
            self.totals[layer] += float(moved.sum())
        return LayerPlan()

    @classmethod
    def exact(cls) -> CachePolicy:
        """It never reuses anything."""
        return cls()


def measure(
    make: Callable[[RunSpec, CachePolicy], Job], model: str, base: str, quantity: str
) -> DriftProfile:
    """Decode training problems of the corpus by the cache `base` and gather the drifts.

    `make` turns a spec and a policy that stands on the spec's cache into a job; `quantity` is
    `q0` (queries of head 0) or `v`. Each row's first computation counts for
    nothing, nor do the steps in which the base renews all that it keeps.
    """
    meter = DriftMeter(quantity)
    for problem in corpus.draw(SEED, PROBLEMS, exam=False):
        spec = RunSpec(
            model=model, prompt=problem.question, gen_length=64, steps=64, cache=base,
        )  # fmt: skip
        for _ in denoise(Denoiser(make(spec, meter))):
            pass
    return DriftProfile(base, quantity, np.stack(meter.counts), np.array(meter.totals))
