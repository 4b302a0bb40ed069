"""ZeroGPU: runs on a shared GPU, in a forked worker that pickles what it yields.

What is asked of `spaces` is what 0.51 does: its decorator takes a generator function and a
`duration` callable with the same arguments, forks a process that runs it, and yields here what
was pickled there. Stopping is told by a file, since nothing else reaches a worker.
"""

from __future__ import annotations

import math
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from engine.config.spec import RaceSpec, RunSpec
from engine.core.events import Event, RunFinished, Waiting
from engine.trace.trace import Trace
from inspector.page_data.sizes import size
from inspector.protocol import Lane, Session
from inspector.server.throttle import coalesce

HZ = 8.0
BEAT = 0.2
MOST_SECONDS = 60  # of a lane: a visitor who is not signed in has 120 s a day
FACTOR = 1.5  # spaces asks for so many times the seconds, for half a card
GPU = "cuda"
Specs = Mapping[Lane, RunSpec]
Batch = list[tuple[Lane, Event]]
Decorator = Callable[..., Callable[..., Iterator[Batch]]]


@dataclass(frozen=True)
class Gpu:
    """What the shared GPU offers: the models that are loaded for it, as (name, dtype).

    `memory` is in bytes; `seconds` says how long a run with its plan takes at most.
    """

    loaded: frozenset[tuple[str, str]]
    memory: int
    seconds: Callable[[RunSpec, Mapping[str, Any]], float]
    device: str = GPU


class Flag:
    """The control of a run in a worker: it goes on as long as a file is there."""

    def __init__(self, path: Path) -> None:
        self._path = path

    @property
    def state(self) -> str:
        """`running` or `stopped`."""
        return "running" if self._path.exists() else "stopped"

    def take_turn(self, wait: float = 0.0) -> bool:
        """Whether the next step may be taken."""
        return self.state == "running"


class ZeroSession:
    """A session whose runs on the GPU go to a worker; all else, the CPU's too, is `inner`'s.

    `decorate` is spaces.GPU. Pausing holds what is shown: the worker goes on, so that no GPU is
    held for nothing.
    """

    def __init__(self, inner: Any, gpu: Gpu, decorate: Decorator) -> None:
        self._inner: Session = inner
        self._gpu = gpu

        def work(specs: Specs, parents: Mapping[str, Trace], flag: str) -> Iterator[Batch]:
            yield from coalesce(events_of(inner.forked(), specs, Flag(Path(flag)), parents), HZ)

        self._work = decorate(work, duration=self._duration)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def catalog(self) -> dict[str, Any]:
        """As the inner session's; the devices are the CPU and the shared GPU."""
        title = {self._gpu.device: f"shared by ZeroGPU, {size(self._gpu.memory)}"}
        devices = list(dict.fromkeys(["cpu", self._gpu.device]))
        return self._inner.catalog() | {"devices": devices, "device_titles": title}

    def plan(self, spec: RunSpec) -> dict[str, Any]:
        """As the inner session's, with `gpu_seconds` to be asked for where a GPU is."""
        found = self._inner.plan(spec)
        if spec.device != self._gpu.device:
            return found
        self._check_loaded(spec, found)
        seconds = self._gpu.seconds(spec, found)
        if seconds > MOST_SECONDS:
            raise ValueError(
                f"device: this run may take {math.ceil(seconds)} s of a shared GPU, and a lane "
                f"gets {MOST_SECONDS} s; lower gen_length or steps, or set device to cpu"
            )
        return found | {"gpu_seconds": math.ceil(seconds * FACTOR), "free_bytes": self._gpu.memory}

    def run(
        self, spec: RunSpec, control: Any, parents: Mapping[str, Trace] | None = None
    ) -> Iterator[Event]:
        """One run; see Session.run."""
        return (event for _, event in self._stream({"a": spec}, control, parents or {}))

    def race(
        self, race: RaceSpec, control: Any, parents: Mapping[str, Trace] | None = None
    ) -> Iterator[tuple[Lane, Event]]:
        """Both runs, in one worker; see Session.race."""
        return self._stream({"a": race.a, "b": race.b}, control, parents or {})

    def _stream(
        self, specs: Specs, control: Any, parents: Mapping[str, Trace]
    ) -> Iterator[tuple[Lane, Event]]:
        devices = {spec.device for spec in specs.values()}
        if self._gpu.device not in devices:
            yield from events_of(self._inner, specs, control, parents)
            return
        if len(devices) > 1:
            raise ValueError("device: give both lanes the same; only one of them asks for a GPU")
        for spec in specs.values():
            self.plan(spec)
        used = {spec.start.trace for spec in specs.values() if spec.start}
        running, failure = list(specs), ""
        yield running[0], Waiting("gpu", seconds=self._duration(specs, {}, "") * FACTOR)
        try:
            with tempfile.TemporaryDirectory(prefix="driftscope-") as folder:
                given = {name: trace for name, trace in parents.items() if name in used}
                for name, event in self._worked(specs, given, Path(folder) / "go", control):
                    if isinstance(event, RunFinished):
                        running.remove(name)
                    yield name, event
        except Exception as error:  # what spaces refuses and what breaks in a worker
            failure = explain(error)
        for name in running:
            nothing = np.zeros((1, 0), np.int32)
            yield name, RunFinished("failed" if failure else "stopped", nothing, message=failure)

    def _worked(
        self, specs: Specs, parents: Mapping[str, Trace], flag: Path, control: Any
    ) -> Iterator[tuple[Lane, Event]]:
        if control.state == "stopped":
            return
        flag.touch()
        try:
            with closing(self._work(specs, parents, str(flag))) as batches:  # type: ignore[type-var]
                for batch in batches:
                    for name, event in batch:
                        yield from held(name, control)
                        if control.state == "stopped":
                            flag.unlink(missing_ok=True)
                        yield name, event
        finally:
            flag.unlink(missing_ok=True)

    def _duration(self, specs: Specs, parents: Mapping[str, Trace], flag: str) -> int:
        """Seconds to ask for; spaces calls it with the arguments of the work."""
        plans = [(spec, self._inner.plan(spec)) for spec in specs.values()]
        return math.ceil(sum(self._gpu.seconds(spec, plan) for spec, plan in plans))

    def _check_loaded(self, spec: RunSpec, plan: Mapping[str, Any]) -> None:
        formats = sorted(dtype for name, dtype in self._gpu.loaded if name == spec.model)
        names = ", ".join(sorted({name for name, _ in self._gpu.loaded}))
        if not formats:
            raise ValueError(
                f"model: {spec.model} is not loaded for this Space's shared GPU; choose from "
                f"{names or 'none'}, or set device to cpu"
            )
        if spec.dtype not in formats:
            raise ValueError(
                f"dtype: {spec.model} is loaded for the shared GPU as {', '.join(formats)}; choose "
                "that, or set device to cpu"
            )
        if plan["fetch_bytes"]:
            raise ValueError(
                "guided.guider: it is not in this Space yet, and none is fetched while a shared "
                "GPU waits; choose another unmasker"
            )
        if plan["memory_bytes"] > self._gpu.memory:
            raise ValueError(
                f"model: its weights and the run take {size(plan['memory_bytes'])}, and the shared "
                f"GPU has {size(self._gpu.memory)}; lower gen_length or shorten the prompt"
            )


def events_of(
    session: Any, specs: Specs, control: Any, parents: Mapping[str, Trace]
) -> Iterator[tuple[Lane, Event]]:
    """The events of one run or of a race, whichever the specs are."""
    if len(specs) == 2:
        return session.race(RaceSpec(specs["a"], specs["b"]), control, parents)
    lane, spec = next(iter(specs.items()))
    return ((lane, event) for event in session.run(spec, control, parents))


def held(lane: Lane, control: Any) -> Iterator[tuple[Lane, Waiting]]:
    """Beat while the run is paused."""
    while control.state == "paused" and not control.take_turn(BEAT):
        yield lane, Waiting("paused")


REFUSALS = (
    ("illegal duration", "The run asks for more GPU time than one call may have."),
    ("quota exceeded", "Your share of GPU time on ZeroGPU does not suffice for this run today."),
    ("credits exceeded", "Your other runs on ZeroGPU hold all the credits you have."),
    ("queue timeout", "No GPU became free within a minute."),
    ("client error", "ZeroGPU could not take the run."),
    ("worker error", "The GPU's worker ended before the run did, out of its time or its memory."),
)
REMEDIES = (
    "Lower steps or gen_length, sign in to Hugging Face for a larger share, try again later, or "
    "choose an embedded model on the CPU, which asks for no GPU."
)


def explain(error: Exception) -> str:
    """A refusal of ZeroGPU in plain words: what it is, what was said, what can be done."""
    said = str(getattr(error, "message", "") or error)
    title = str(getattr(error, "title", "")).lower()
    what = next((text for part, text in REFUSALS if part in title), "The run on the GPU failed.")
    return f"{what} ZeroGPU says: {said.rstrip('. ')}. {REMEDIES}"
