"""Trials: the steps of runs, timed in turn with the bare matrix products that they execute.

`torch.utils.benchmark` is not used: its Timer repeats one statement, while a trial times every
step of a run and alternates runs, products and device rates within each round.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, TypeVar

import numpy as np

from engine.bench.floor import Buffers, Product, ProductRecorder, ProductReplay
from engine.bench.host_waits import HostWaits, count_waits, with_captures
from engine.config.spec import RunSpec
from engine.core.device import free_memory, peak_memory, reset_peak_memory, synchronized_time
from engine.core.events import RunFinished, StepEvent
from engine.generate.capture.capturers import CudaCapturer
from engine.generate.job import Job
from engine.generate.loop import Denoiser, denoise
from engine.generate.step_state import PendingStep
from engine.guider.model import Guider
from engine.models.kernels.linear import without_row_padding
from engine.record import make_recorder
from engine.serve.lane import make_lane
from engine.serve.loaded_model import LoadedModel, make_job

T = TypeVar("T")


@dataclass(frozen=True)
class Case:
    """A run to be timed: a spec and prompts (lists of ids) that are decoded as one batch.

    Attributes:
        baseline: name of the case of the same `group` that its speed is compared with; empty
            for the first of the group.
        eager: run every forward eagerly, without captures.
    """

    name: str
    model: LoadedModel
    spec: RunSpec
    prompts: list[list[int]]
    group: str = ""
    baseline: str = ""
    eager: bool = False

    @property
    def recorded(self) -> bool:
        """Whether a recorder is active; its own products are not part of the floor."""
        return self.spec.record != "off"

    def job(self) -> Job:
        """A new job of this case."""
        job = make_job(self.model, self.spec, self.prompts, make_recorder(self.spec))
        return replace(job, capturer=None) if self.eager else job


@dataclass(frozen=True)
class DryRun:
    """What a case computes, found in an untimed run whose forwards are eager.

    `kinds`, `flops` and `products` have one item per step; a recorded case has no products. `ids`
    [B, T] is the final canvas, `positions` counts committed positions, `peak_bytes` is None if
    unknown, `waits` is None on a CPU and of an eager case.
    """

    kinds: list[str]
    flops: list[int]
    products: list[list[Product]]
    ids: np.ndarray
    positions: int
    cache_bytes: int
    peak_bytes: int | None
    waits: HostWaits | None = None


@dataclass(frozen=True)
class Trial:
    """A case with its measured seconds, as [rounds][steps].

    `floors` are those of its products by torch's routines (empty for a recorded case),
    `own_floors` those by the engine's routine (empty if that is torch's).
    """

    case: Case
    dry_run: DryRun
    runs: list[list[float]]
    floors: list[list[float]]
    own_floors: list[list[float]]


class SynchronousDenoiser(Denoiser):
    """Finalizes each step before it launches the next, so that a measurement covers one step."""

    def can_run_ahead(self, step: PendingStep) -> bool:
        """Never."""
        return False


def dry_run(case: Case) -> DryRun:
    """Run a case untimed: eagerly for steps and products, captured for tokens, peak and waits.

    It also serves as warm-up.
    """
    device = case.model.adapter.device
    reset_peak_memory(device)
    job, recorder = case.job(), ProductRecorder(case.model.adapter)
    state = SynchronousDenoiser(replace(job, capturer=None))
    events = list(denoise(state)) if case.recorded else _record_products(state, recorder)
    ids, cache_bytes = state.ids, state.cached_bytes()
    if job.capturer is not None:
        del state  # with its caches, so that the peak is that of one run
        free_memory()
        reset_peak_memory(device)
        ids = _decode_with_captures(job)
    return DryRun(
        kinds=[event.kind for event in events],
        flops=[int(event.flops.sum()) for event in events],
        products=recorder.steps,
        ids=ids,
        positions=sum(len(event.positions) for event in events),
        cache_bytes=cache_bytes,
        peak_bytes=peak_memory(device),
        waits=count_waits(job) if device.type == "cuda" and not case.eager else None,
    )


def _record_products(state: Denoiser, recorder: ProductRecorder) -> list[StepEvent]:
    """The events of a run whose products are recorded at their true sizes, without padding."""

    def all_events() -> list[StepEvent]:
        events = []
        for event in denoise(state):
            events.append(event)
            recorder.end_step()
        return events

    adapter = state.job.adapter
    kernels = adapter.kernels
    adapter.use_kernels(recorder.watched(kernels))
    try:
        with recorder:
            return without_row_padding(all_events)
    finally:
        adapter.use_kernels(kernels)


def _decode_with_captures(job: Job) -> np.ndarray:
    """The final canvas [B, T] of a run whose forwards are captured."""
    state = with_captures(job)
    deque(denoise(state), maxlen=0)
    return state.ids


def step_seconds(case: Case, max_steps: int | None = None) -> list[float]:
    """Seconds of each step until its event, recording included; set-up and end excluded.

    Forwards are captured before. The run stops after `max_steps`.
    """
    steps = denoise(with_captures(case.job(), max_steps=max_steps))
    times: list[float] = []
    started = synchronized_time(case.model.adapter.device)
    while len(times) != max_steps and next(steps, None) is not None:
        stopped = time.perf_counter()
        times.append(stopped - started)
        started = stopped
    return times


def interleaved(works: Mapping[str, Callable[[], T]], rounds: int) -> dict[str, list[T]]:
    """Call every function once in each round, in turn; returns their results by name."""
    found: dict[str, list[T]] = {name: [] for name in works}
    for _ in range(rounds):
        for name, work in works.items():
            found[name].append(work())
    return found


def run_trials(
    cases: Sequence[Case], rounds: int, rates: Mapping[str, Callable[[], float]]
) -> tuple[list[Trial], dict[str, list[float]]]:
    """Time every case and its products in turn, in each of the rounds.

    All cases have the same device; each has a dry run first. Returns the trials and the values
    of `rates`, functions that are called in the same rounds, by name.
    """
    dry_runs = [dry_run(case) for case in cases]
    device = cases[0].model.adapter.device
    buffers = Buffers((step for one in dry_runs for step in one.products), device)
    capturer = CudaCapturer(device) if device.type == "cuda" else None
    works: dict[str, Callable[[], Any]] = {}
    for index, (case, done) in enumerate(zip(cases, dry_runs, strict=True)):
        works[f"run {index}"] = partial(step_seconds, case)
        onednn = any(product.onednn for step in done.products for product in step)
        for kind, wanted in {"floor": bool(done.products), "own": onednn}.items():
            if wanted:
                replay = ProductReplay(done.products, buffers, kind == "own", capturer)
                replay.run()
                works[f"{kind} {index}"] = replay.run
    found = interleaved(works | dict(rates), rounds)
    trials = [
        Trial(case, done, *(found.get(f"{kind} {index}", []) for kind in ("run", "floor", "own")))
        for index, (case, done) in enumerate(zip(cases, dry_runs, strict=True))
    ]
    return trials, {name: found[name] for name in rates}


def run_once(model: LoadedModel | Guider, spec: RunSpec) -> RunFinished:
    """Run a spec from its first canvas to its end."""
    lane = make_lane(model, spec)
    lane.start()
    while not isinstance(event := lane.advance(), RunFinished):
        pass
    return event
