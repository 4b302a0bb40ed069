"""Trials: runs timed in turn beside the bare products that they are made of."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, TypeVar

import numpy as np

from engine.bench.floor import Buffers, Product, ProductRecorder, Replay
from engine.bench.host_waits import Waits, count_waits, warmed
from engine.config.spec import RunSpec
from engine.core.device import now, peak_memory, reset_peak_memory
from engine.core.events import RunFinished, StepEvent
from engine.generate.job import Job
from engine.generate.loop import Denoiser, denoise
from engine.generate.step_state import PendingStep
from engine.models.linear import recurring
from engine.record.levels import make_recorder
from engine.serve.lane import Lane, LoadedModel, make_job

T = TypeVar("T")


@dataclass(frozen=True)
class Case:
    """What is timed: a spec over prompts of ids, decoded together.

    Its speed is compared with that of the case `beside` of the same `group`, empty: the group's
    first. `eager`: no forward is captured, wherever it could be.
    """

    name: str
    model: LoadedModel
    spec: RunSpec
    prompts: list[list[int]]
    group: str = ""
    beside: str = ""
    eager: bool = False

    @property
    def recorded(self) -> bool:
        """Whether a recorder runs along; its own products are no part of the floor."""
        return self.spec.record != "off"

    def job(self) -> Job:
        """A fresh run, to be decoded."""
        job = make_job(self.model, self.spec, self.prompts, make_recorder(self.spec))
        return replace(job, capturer=None) if self.eager else job


@dataclass(frozen=True)
class DryRun:
    """What a run does, apart from time.

    For each step its kind, FLOPs and products (none for a recorded case), all eager; `ids` [B, T]
    at the end, positions committed, bytes of the caches and at the device's peak, how often the
    host waited (None: on a CPU).
    """

    kinds: list[str]
    flops: list[int]
    products: list[list[Product]]
    ids: np.ndarray
    positions: int
    cache_bytes: int
    peak_bytes: int | None
    waits: Waits | None = None


@dataclass(frozen=True)
class Trial:
    """A case with its times in seconds, [rounds][steps]; empty lists where none was taken.

    `floors` are those of its products by torch's own routine, `owns` by that of the engine where
    it is another one.
    """

    case: Case
    rehearsal: DryRun
    runs: list[list[float]]
    floors: list[list[float]]
    owns: list[list[float]]


class SynchronousDenoiser(Denoiser):
    """Tells each step before it asks for the next, so that what is noted meanwhile is of one."""

    def can_run_ahead(self, step: PendingStep) -> bool:
        """Never."""
        return False


def dry_run(case: Case) -> DryRun:
    """Run a case once, untimed: the warm-up, in which its products are noted."""
    device = case.model.adapter.device
    reset_peak_memory(device)
    job, noted = case.job(), ProductRecorder(case.model.adapter)
    state = SynchronousDenoiser(replace(job, capturer=None))
    events = list(denoise(state)) if case.recorded else _noting(state, noted)
    return DryRun(
        kinds=[event.kind for event in events],
        flops=[int(event.flops.sum()) for event in events],
        products=noted.steps,
        ids=state.ids if job.capturer is None else _answered(job),
        positions=sum(len(event.positions) for event in events),
        cache_bytes=state.held(),
        peak_bytes=peak_memory(device),
        waits=count_waits(job) if device.type == "cuda" else None,
    )


def _noting(state: Denoiser, noted: ProductRecorder) -> list[StepEvent]:
    """The events of a run whose products are noted, without zeros that fill up few rows."""

    def all_events() -> list[StepEvent]:
        events = []
        for event in denoise(state):
            events.append(event)
            noted.cut()
        return events

    with noted:
        return recurring(all_events)


def _answered(job: Job) -> np.ndarray:
    """What a job with captured forwards decodes."""
    state = warmed(job)
    deque(denoise(state), maxlen=0)
    return state.ids


def seconds(case: Case, most: int | None = None) -> list[float]:
    """Wall time of each step of a run until it is told, recording included, its start and end not.

    `most` is after how many steps to stop. Captures are made before.
    """
    steps = denoise(warmed(case.job(), most=most))
    times: list[float] = []
    started = now(case.model.adapter.device)
    while len(times) != most and next(steps, None) is not None:
        stopped = time.perf_counter()
        times.append(stopped - started)
        started = stopped
    return times


def interleaved(works: Mapping[str, Callable[[], T]], rounds: int) -> dict[str, list[T]]:
    """Every work once in each round, in turn; what they gave, by name."""
    found: dict[str, list[T]] = {name: [] for name in works}
    for _ in range(rounds):
        for name, work in works.items():
            found[name].append(work())
    return found


def measure(
    cases: Sequence[Case], rounds: int, others: Mapping[str, Callable[[], float]]
) -> tuple[list[Trial], dict[str, list[float]]]:
    """Every case run and its products multiplied again, in turn, in each of the rounds.

    The cases lie on one device; all are rehearsed first. `others` are measured in the same
    rounds, by name.
    """
    known = [dry_run(case) for case in cases]
    buffers = Buffers(
        (step for one in known for step in one.products), cases[0].model.adapter.device
    )
    works: dict[str, Callable[[], Any]] = {}
    for index, (case, rehearsal) in enumerate(zip(cases, known, strict=True)):
        works[f"run {index}"] = partial(seconds, case)
        products = rehearsal.products
        kinds = {"floor": bool(products), "own": any(p.onednn for step in products for p in step)}
        for kind in (name for name, wanted in kinds.items() if wanted):
            replay = Replay(products, buffers, own=kind == "own")
            replay.run()
            works[f"{kind} {index}"] = replay.run
    found = interleaved(works | dict(others), rounds)
    trials = [
        Trial(
            case,
            rehearsal,
            found[f"run {index}"],
            *(found.get(f"{kind} {index}", []) for kind in ("floor", "own")),
        )
        for index, (case, rehearsal) in enumerate(zip(cases, known, strict=True))
    ]
    return trials, {name: found[name] for name in others}


def run_once(model: LoadedModel, spec: RunSpec) -> RunFinished:
    """One run from its first canvas to its end."""
    lane = Lane(model, spec)
    lane.start()
    while not isinstance(event := lane.advance(), RunFinished):
        pass
    return event
