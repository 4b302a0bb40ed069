"""Measure how far each layer's activations drift between steps under a base cache."""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import dataclass, field, replace

import numpy as np

from engine.cache.base import CachePolicy, LayerPlan, LayerProbe, RunInfo, StepPlan, StepView
from engine.cache.calibration.drift_profile import BINS, DriftProfile, histogram
from engine.cache.store import Site
from engine.catalog import derive_plan
from engine.config.spec import RunSpec
from engine.core.progress import Progress
from engine.generate.job import Job
from engine.generate.loop import Denoiser, denoise
from engine.models.base import ModelInfo
from engine.models.ops import drift
from engine.tiny import corpus
from engine.tiny.family import TRAINING

PROBLEMS, SEED, FAMILY = 8, 2605, "short_problems"
BASES = ("none", "prefix", "dual", "freecache", "frozen")
ANSWER = 64


@dataclass
class DriftMeter(CachePolicy):
    """Recomputes every row and counts the drifts of head 0's queries (`q0`) or of the values (`v`).

    Rows are compared with the step before; steps in which the base refreshes everything are left
    out.
    """

    quantity: str = "q0"
    stackable_on = BASES
    name = "meter"
    counts: list[np.ndarray] = field(default_factory=list)
    totals: list[float] = field(default_factory=list)

    def sites(self, run: RunInfo) -> tuple[Site, ...]:
        """The measured activation of the step before."""
        width = run.info.head_dim if self.quantity == "q0" else run.info.d_kv
        return (Site(self.quantity if self.quantity == "q0" else "v_last", width),)

    def begin_step(self, view: StepView) -> StepPlan:
        """Count no drifts if the base refreshes everything in this step."""
        self._counting = not view.window_refreshed
        return StepPlan()

    def plan(self, layer: int, probe: LayerProbe) -> LayerPlan:
        """Count a layer's drifts; recompute every row."""
        if layer == len(self.counts):
            self.counts.append(np.zeros(BINS, np.int64))
            self.totals.append(0.0)
        if self.quantity == "q0":
            new, site = probe.project("q", heads=slice(0, 1)), "q0"
        else:
            new, site = probe.project("v"), "v_last"
        if not self._counting:
            probe.keep(site, new.flatten(2))
        elif (old := probe.swap(site, new.flatten(2))) is not None:
            drifts = drift(new.flatten(2), old).clamp_min(0).cpu().numpy().astype(np.float64)
            self.counts[layer] += histogram(drifts)
            self.totals[layer] += float(drifts.sum())
        return LayerPlan()


def measure_drifts(
    make_job: Callable[[RunSpec, CachePolicy], Job],
    model: str,
    base: str,
    quantity: str,
    info: ModelInfo,
) -> Generator[Progress, None, DriftProfile]:
    """Decode training problems of the corpus with the cache `base` and collect the drifts.

    Yields the forwards done, of the most that the problems take. `make_job` makes a job of a spec
    and a policy stacked on the spec's cache; `quantity` is `q0` or `v`; `info` is the model's.
    """
    meter, (spec, most) = DriftMeter(quantity), calibration(base, info)
    for index, problem in enumerate(corpus.draw(SEED, PROBLEMS, TRAINING, FAMILY)):
        own = replace(spec, model=model, prompt=problem.question)
        for event in denoise(Denoiser(make_job(own, meter))):
            yield Progress(index * most + event.step + 1, PROBLEMS * most, "forwards")
    return DriftProfile(base, quantity, np.stack(meter.counts), np.array(meter.totals))


def calibration(base: str, info: ModelInfo) -> tuple[RunSpec, int]:
    """The spec that drifts are measured with, without model and prompt, and its most forwards."""
    block = info.block_size or RunSpec().block_length
    length = -(-ANSWER // block) * block
    spec = RunSpec(gen_length=length, block_length=block, steps=length, cache=base)
    return spec, derive_plan(spec, info)[0].max_forwards
