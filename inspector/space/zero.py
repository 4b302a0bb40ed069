"""ZeroGPU: runs on a GPU that is shared between Spaces, in a forked worker process.

This module relies on the behaviour of `spaces` 0.51: its decorator takes a generator function and
a `duration` callable with the same arguments, forks a process that runs the generator, and yields
the pickled values in this process. A run is stopped by deleting a file, because there is no other
channel to the worker.
"""

from __future__ import annotations

import math
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from engine.config.spec import AUTO_DTYPE, RaceSpec, RunSpec
from engine.core.control import MAX_PAUSE
from engine.core.events import Event, RunFinished, Waiting
from engine.trace.trace import Trace
from inspector.page_data.sizes import size
from inspector.protocol import Lane, Pictures, Session
from inspector.server.throttle import coalesce

HZ = 8.0
PAUSE_POLL_S = 0.2
MAX_LANE_SECONDS = 60  # a visitor who is not signed in has 120 s per day
QUOTA_FACTOR = 1.5  # spaces multiplies the requested seconds by this for half a card
GPU = "cuda"
Specs = Mapping[Lane, RunSpec]
Batch = list[tuple[Lane, Event]]
Decorator = Callable[..., Callable[..., Iterator[Batch]]]


@dataclass(frozen=True)
class SharedGpu:
    """The shared GPU and the models that are loaded for it.

    Attributes:
        loaded: (name, dtype) of each loaded model.
        memory: its memory in bytes.
        seconds: a function of a spec and its plan that gives the longest time of the run.
        device: its name in run specs.
    """

    loaded: frozenset[tuple[str, str]]
    memory: int
    seconds: Callable[[RunSpec, Mapping[str, Any]], float]
    device: str = GPU


class FileControl:
    """The control of a run in a worker: the run continues as long as a file exists."""

    owner = ""  # no other run waits there

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
    """A session that runs GPU specs in a ZeroGPU worker and everything else in `inner`.

    A pause stops only the display. The worker continues, so that the GPU is not reserved longer
    than needed.

    Args:
        inner: the session in this process; it also runs CPU specs.
        gpu: the shared GPU.
        decorate: `spaces.GPU`.
    """

    def __init__(self, inner: Any, gpu: SharedGpu, decorate: Decorator) -> None:
        self._inner: Session = inner
        self._gpu = gpu

        def work(
            specs: Specs, parents: Mapping[str, Trace], images: Pictures, flag: str
        ) -> Iterator[Batch]:
            control = FileControl(Path(flag))
            yield from coalesce(events_of(inner.forked(), specs, control, parents, images), HZ)

        self._work = decorate(work, duration=self._duration)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def catalog(self) -> dict[str, Any]:
        """The inner session's catalog with two devices: the CPU and the shared GPU."""
        title = {self._gpu.device: f"shared by ZeroGPU, {size(self._gpu.memory)}"}
        devices = list(dict.fromkeys(["cpu", self._gpu.device]))
        return self._inner.catalog() | {"devices": devices, "device_titles": title}

    def plan(self, spec: RunSpec) -> dict[str, Any]:
        """The inner session's plan; for the GPU also `gpu_seconds`, the time to request.

        Raises ValueError if the model is not loaded or the run needs too much time or memory.
        """
        spec = self._in_loaded_format(spec)
        found = self._inner.plan(spec)
        if spec.device != self._gpu.device:
            return found
        self._check_loaded(spec, found)
        seconds = self._seconds(spec, found)
        if seconds > MAX_LANE_SECONDS:
            raise ValueError(
                f"device: this run may take {math.ceil(seconds)} s of the shared GPU, and the "
                f"limit is {MAX_LANE_SECONDS} s per lane; lower gen_length or steps, or set "
                "device to cpu"
            )
        return found | {
            "gpu_seconds": math.ceil(seconds * QUOTA_FACTOR),
            "free_bytes": self._gpu.memory,
        }

    def run(
        self,
        spec: RunSpec,
        control: Any,
        parents: Mapping[str, Trace] | None = None,
        images: Pictures | None = None,
    ) -> Iterator[Event]:
        """Run one spec and yield its events; see Session.run."""
        return (
            event for _, event in self._stream({"a": spec}, control, parents or {}, images or {})
        )

    def race(
        self,
        race: RaceSpec,
        control: Any,
        parents: Mapping[str, Trace] | None = None,
        images: Pictures | None = None,
    ) -> Iterator[tuple[Lane, Event]]:
        """Run both lanes in one worker and yield their events; see Session.race."""
        return self._stream({"a": race.a, "b": race.b}, control, parents or {}, images or {})

    def _stream(
        self, specs: Specs, control: Any, parents: Mapping[str, Trace], images: Pictures
    ) -> Iterator[tuple[Lane, Event]]:
        devices = {spec.device for spec in specs.values()}
        if self._gpu.device not in devices:
            yield from events_of(self._inner, specs, control, parents, images)
            return
        if len(devices) > 1:
            raise ValueError("device: both lanes must have the same; only one of them is a GPU")
        specs = {name: self._in_loaded_format(spec) for name, spec in specs.items()}
        plans = [self.plan(spec) for spec in specs.values()]
        if len(specs) == 2:
            self._inner.check_race(RaceSpec(specs["a"], specs["b"]), plans)
        used = {spec.start.trace for spec in specs.values() if spec.start}
        running, failure = list(specs), ""
        yield running[0], Waiting("gpu", seconds=self._duration(specs, {}, {}, "") * QUOTA_FACTOR)
        try:
            with tempfile.TemporaryDirectory(prefix="driftscope-") as folder:
                given = {name: trace for name, trace in parents.items() if name in used}
                for name, event in self._worked(specs, given, images, Path(folder) / "go", control):
                    if isinstance(event, RunFinished):
                        running.remove(name)
                    yield name, event
        except Exception as error:  # refusals of spaces, and errors in the worker
            failure = zero_gpu_error_text(error)
        for name in running:
            nothing = np.zeros((1, 0), np.int32)
            yield name, RunFinished("failed" if failure else "stopped", nothing, message=failure)

    def _worked(
        self,
        specs: Specs,
        parents: Mapping[str, Trace],
        images: Pictures,
        flag: Path,
        control: Any,
    ) -> Iterator[tuple[Lane, Event]]:
        if control.state == "stopped":
            return
        flag.touch()
        try:
            with closing(self._work(specs, parents, images, str(flag))) as batches:  # type: ignore[type-var]
                for batch in batches:
                    for name, event in batch:
                        yield from wait_while_paused(name, control)
                        if control.state == "stopped":
                            flag.unlink(missing_ok=True)
                        yield name, event
        finally:
            flag.unlink(missing_ok=True)

    def _duration(
        self, specs: Specs, parents: Mapping[str, Trace], images: Pictures, flag: str
    ) -> int:
        """Seconds to request; spaces calls it with the arguments of the worker's function."""
        plans = [(spec, self._inner.plan(spec)) for spec in specs.values()]
        return math.ceil(sum(self._seconds(spec, plan) for spec, plan in plans))

    def _seconds(self, spec: RunSpec, plan: Mapping[str, Any]) -> float:
        """The longest time of a run, in the number format that its plan chose."""
        return self._gpu.seconds(replace(spec, dtype=plan["dtype"]), plan)

    def _loaded_formats(self, spec: RunSpec) -> list[str]:
        return sorted(dtype for name, dtype in self._gpu.loaded if name == spec.model)

    def _in_loaded_format(self, spec: RunSpec) -> RunSpec:
        """The spec with the format that its model is loaded in, if the spec leaves it open."""
        formats = self._loaded_formats(spec)
        if spec.device != self._gpu.device or spec.dtype != AUTO_DTYPE or not formats:
            return spec
        return replace(spec, dtype=formats[0])

    def _check_loaded(self, spec: RunSpec, plan: Mapping[str, Any]) -> None:
        formats = self._loaded_formats(spec)
        names = ", ".join(sorted({name for name, _ in self._gpu.loaded}))
        causal = spec.unmasker == "autoregressive"  # its own model is loaded within the run
        if not formats and not causal:
            raise ValueError(
                f"model: {spec.model} is not loaded for this Space's shared GPU; choose from "
                f"{names or 'none'}, or set device to cpu"
            )
        if spec.dtype not in formats and not causal:
            raise ValueError(
                f"dtype: {spec.model} is loaded for the shared GPU as {', '.join(formats)}; choose "
                "that, or set device to cpu"
            )
        if plan["fetch_bytes"]:
            field = "autoregressive.model" if causal else "guided.guider"
            raise ValueError(
                f"{field}: it is not on this Space yet, and nothing is downloaded while a shared "
                "GPU is reserved; choose another unmasker"
            )
        if plan["memory_bytes"] > self._gpu.memory:
            raise ValueError(
                f"model: its weights and the run take {size(plan['memory_bytes'])}, and the shared "
                f"GPU has {size(self._gpu.memory)}; lower gen_length or shorten the prompt"
            )


def events_of(
    session: Any, specs: Specs, control: Any, parents: Mapping[str, Trace], images: Pictures
) -> Iterator[tuple[Lane, Event]]:
    """The events of a race if there are two specs, otherwise of one run."""
    if len(specs) == 2:
        return session.race(RaceSpec(specs["a"], specs["b"]), control, parents, images)
    lane, spec = next(iter(specs.items()))
    return ((lane, event) for event in session.run(spec, control, parents, images))


def wait_while_paused(lane: Lane, control: Any) -> Iterator[tuple[Lane, Waiting]]:
    """Yield a Waiting event at every poll while the run is paused.

    A run that is paused for more than MAX_PAUSE is stopped.
    """
    deadline = time.monotonic() + MAX_PAUSE
    while control.state == "paused" and not control.take_turn(PAUSE_POLL_S):
        if time.monotonic() > deadline:
            control.stop()
        yield lane, Waiting("paused")


REFUSALS = (
    ("illegal duration", "The run needs more GPU time than one call may have."),
    ("quota exceeded", "Your ZeroGPU quota does not suffice for this run today."),
    ("credits exceeded", "Your other runs on ZeroGPU use all the credits you have."),
    ("queue timeout", "No GPU became free within a minute."),
    ("client error", "ZeroGPU could not accept the run."),
    ("worker error", "The GPU worker ended before the run did: it ran out of time or memory."),
)
REMEDIES = (
    "Lower steps or gen_length, sign in to Hugging Face for a larger quota, try again later, or "
    "choose an embedded model on the CPU, which needs no GPU."
)


def zero_gpu_error_text(error: Exception) -> str:
    """The text that the visitor sees for an error of ZeroGPU: cause, its message, remedies."""
    message = str(getattr(error, "message", "") or error)
    title = str(getattr(error, "title", "")).lower()
    cause = next((text for part, text in REFUSALS if part in title), "The run on the GPU failed.")
    return f"{cause} Message of ZeroGPU: {message.rstrip('. ')}. {REMEDIES}"
