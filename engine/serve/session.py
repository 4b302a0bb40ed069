"""Session: models, the lock around them, and runs as streams of events."""

from __future__ import annotations

import copy
import dataclasses
from collections import deque
from collections.abc import Generator, Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import torch

from engine import catalog
from engine.config.spec import RaceSpec, RunSpec
from engine.core.control import Control
from engine.core.device import free_memory
from engine.core.events import Event, RunFinished, Waiting
from engine.core.progress import with_progress
from engine.generate.branch import BranchPoint, branch_point
from engine.models.loading.hub import Hub
from engine.serve import problems
from engine.serve.fair_queue import FairQueue
from engine.serve.gpu_time import GpuSpec, run_seconds, start_seconds
from engine.serve.lane import Lane, check_context
from engine.serve.limits import AUTO, Limits
from engine.serve.memory_budget import FIGURES, device_titles, dtype_of, present_devices
from engine.serve.model_pool import ModelPool
from engine.serve.out_of_memory import is_out_of_memory, out_of_memory_message
from engine.serve.race import Turn, claim, drive
from engine.trace.trace import Trace

T = TypeVar("T")
NOTHING = np.zeros((1, 0), np.int32)


class Session:
    """What the page and the API use; one model lock, any number of runs waiting for it.

    `folders` are models by name. A `hub` adds those registered there and, unless the page is
    `public`, any other of its models; unless `public` a spec may also name a folder. A public
    page has `Limits`, which bind whoever asks.
    """

    def __init__(
        self, folders: Mapping[str, Path], hub: Hub | None = None, public: bool = False
    ) -> None:
        self._models = ModelPool(folders, hub, public)
        self._queue = FairQueue()
        self._limits = Limits() if public else None

    def catalog(self) -> dict[str, Any]:
        """Models, devices with titles, unmaskers, caches and spec fields as plain data.

        Each of the `models` has name, title, family, max_length, licence, parameters, embedded,
        available, registered, fetch_bytes, presets, and error where it cannot be read;
        `guiders` are the names that `guided.guider` may have; `any_model` says that others may be
        named too, of models and guiders.
        """
        own: dict[str, Any] = {"models": self._models.describe(), "devices": present_devices()}
        own["device_titles"] = device_titles()
        own["guiders"] = self._models.guiders.names
        own["any_model"] = self._limits is None
        described = catalog.describe()
        if self._limits is not None:
            own["devices"].remove(AUTO)
            described["fields"] = self._limits.narrowed(described["fields"])
        return own | described

    def control(self) -> Control:
        """A fresh control for a run."""
        return Control()

    def plan(self, spec: RunSpec) -> dict[str, Any]:
        """The derived plan, the prompt's tokens and the model's context.

        `probe_forwards` is how many exact forwards level `probe` adds at most; `weights_bytes`,
        `memory_bytes` (weights and run) and `free_bytes` are of the device, `fetch_bytes` are to
        come from the Hub, a guider's among them where they are known; `guider_bytes` are the
        guider's part of memory, None where that is not known before it is fetched. The network is
        not asked: of a model that is not on disk `prompt_tokens` is None, and of one that is not
        registered either the rest of these is.
        Raises ValueError naming the field that makes the run impossible.
        """
        if self._limits is not None:
            self._limits.check(spec)
        derived, scheduled = catalog.derive_plan(spec)
        info, prompt = self._models.info(spec.model), self._models.prompt(spec)
        tokens = None if prompt is None else len(prompt)
        context = None if info is None else info.max_length
        if context is not None:
            check_context(tokens or 1, spec, context)
        if prompt is not None and info is not None:
            tokenizer = self._models.tokenizer(spec.model)
            self._models.guiders.check(spec, tokenizer, info, prompt)
        if self._limits is not None and info is not None:
            self._limits.check_recording(spec, info, tokens or 1, derived.max_forwards)
        room = self._models.room(spec, tokens or 1)
        probes = min(spec.probe_steps, derived.max_forwards) if spec.record == "probe" else 0
        counted = {"prompt_tokens": tokens, "context": context, "scheduled": scheduled}
        memory = dict.fromkeys(FIGURES) if room is None else room.to_dict()
        guiders, coming = self._models.guiders, self._models.fetch_bytes(spec.model)
        memory["fetch_bytes"] = None if coming is None else coming + guiders.fetch_bytes(spec)
        memory["guider_bytes"] = guiders.planned_bytes(spec, tokens or 1)
        return dataclasses.asdict(derived) | counted | memory | {"probe_forwards": probes}

    def run(
        self,
        spec: RunSpec,
        control: Control | None = None,
        parents: Mapping[str, Trace] | None = None,
    ) -> Iterator[Event]:
        """One run; see `race`."""
        stream = self._stream({"a": spec}, control or Control(), parents or {})
        return (event for _, event in stream)

    def race(
        self,
        race: RaceSpec,
        control: Control | None = None,
        parents: Mapping[str, Trace] | None = None,
    ) -> Iterator[tuple[str, Event]]:
        """Two runs in lanes `a` and `b`, each at its own true speed, never at the same time.

        `parents` holds the traces that a spec's `start` may name, by id; they are only read.
        Raises ValueError before anything is computed where a spec is impossible, or too many runs
        wait; what fails later is told by a RunFinished with reason `failed`, or `memory` where
        there was none left.
        """
        lanes = {"a": race.a, "b": race.b}
        return self._stream(lanes, control or Control(), parents or {})

    def preload(self, name: str) -> None:
        """Fetch a model and load it, at 16 bits to the GPU where there is one."""
        place = {"device": "cuda", "dtype": "bfloat16"} if torch.cuda.is_available() else {}
        spec = RunSpec.from_dict({"model": name, "prompt": name} | place)
        deque(self._models.fetch(spec), maxlen=0)
        turn = Turn(self._queue)
        deque(claim(turn, Control()), maxlen=0)
        try:
            self._models.load(spec)
        finally:
            turn.release()

    def forked(self) -> Session:
        """This session in a forked process: its models, a line of its own and one thread.

        A lock may have been held, and threads of a library been at work, while it was forked.
        """
        torch.set_num_threads(1)
        own = copy.copy(self)
        own._queue = FairQueue()
        return own

    def seconds(self, card: GpuSpec, spec: RunSpec, plan: Mapping[str, Any]) -> float:
        """Most seconds of a run with this plan on a GPU, a worker's start included; computed."""
        info = self._models.info(spec.model)
        assert info is not None, "what runs there is loaded"
        return run_seconds(card, spec, info, plan) + start_seconds(info, dtype_of(spec))

    def problem(self, seed: int, shots: int = 0) -> dict[str, Any]:
        """A word problem of the embedded corpus with `shots` worked examples, and its answer."""
        return problems.problem(seed, shots)

    def examples(self) -> list[dict[str, Any]]:
        """Prompts to start from."""
        return problems.examples()

    def default_race(self) -> RaceSpec:
        """Plain decoding against Fast-dLLM's dual cache with threshold 0.9."""
        names = [row["name"] for row in self._models.describe() if row["available"]]
        return problems.default_race(names[0] if names else RunSpec().model)

    def _stream(
        self, specs: Mapping[str, RunSpec], control: Control, parents: Mapping[str, Trace]
    ) -> Iterator[tuple[str, Event]]:
        points = {name: self._point(spec, parents) for name, spec in specs.items()}
        if self._queue.full:
            raise ValueError(
                "queue: as many runs wait as may; try again in a minute, and look at the recorded "
                "runs meanwhile"
            )
        most = sum(catalog.derive_plan(spec)[0].max_forwards for spec in specs.values())
        turn, running, reason, failure = Turn(self._queue, most), list(specs), "stopped", ""
        try:
            for name, event in self._events(specs, points, parents, turn, control):
                if isinstance(event, RunFinished):
                    running.remove(name)
                yield name, event
        except Exception as error:  # whatever broke, the page is told and the lock is freed
            reason = "memory" if is_out_of_memory(error) else "failed"
            failure = out_of_memory_message(error, specs.values(), self._models)
        finally:
            turn.release()
        if reason == "memory":
            free_memory()
        for name in running:
            yield name, RunFinished(reason, NOTHING, message=failure)

    def _point(self, spec: RunSpec, parents: Mapping[str, Trace]) -> BranchPoint | None:
        """Where a spec goes on, checked; of a model that is not on disk yet nothing is known."""
        self.plan(spec)
        prompt = self._models.prompt(spec)
        return None if prompt is None else branch_point(spec, parents, prompt)

    def _events(
        self,
        specs: Mapping[str, RunSpec],
        points: dict[str, BranchPoint | None],
        parents: Mapping[str, Trace],
        turn: Turn,
        control: Control,
    ) -> Iterator[tuple[str, Event]]:
        lanes: dict[str, Lane] = {}
        for name, spec in specs.items():  # outside the lock: others run meanwhile
            for wait in with_progress(self._models.fetch(spec), "fetching", spec.model, control):
                yield name, wait
            if control.state == "stopped":
                return
            if spec.start is not None and points[name] is None:
                points[name] = self._point(spec, parents)
        for wait in claim(turn, control):
            yield next(iter(specs)), wait
        for name, spec in specs.items():
            tokens = len(self._models.prompt(spec) or ())
            loading = self._models.loading(spec, tokens, beside=list(specs.values()))
            model = yield from _lane(name, with_progress(loading, "loading", spec.model, control))
            if model is None:
                return
            lanes[name] = Lane(model, spec, points[name])
            yield name, Waiting("warmup", what=spec.model)
            lanes[name].warm_up()
        for name, lane in lanes.items():
            yield name, lane.start()
        yield from drive(lanes, turn, control)


def _lane(name: str, waits: Generator[Waiting, None, T]) -> Generator[tuple[str, Event], None, T]:
    """Events of a lane, with the value of what it waits for."""
    while True:
        try:
            yield name, next(waits)
        except StopIteration as end:
            return end.value
