"""Session: models, the lock around them, and runs as streams of events."""

from __future__ import annotations

import dataclasses
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch

from engine import catalog
from engine.branch import BranchPoint, branch_point
from engine.control import Control
from engine.events import Event, RunFinished, Waiting
from engine.lane import Lane, check_context
from engine.library import Library, usable_device
from engine.race import Turn, claim, drive
from engine.spec import RaceSpec, RunSpec
from engine.tiny.exam import exam
from engine.trace import Trace

NOTHING = np.zeros((1, 0), np.int32)
DEFAULT_SEED, MANY_SHOTS = 3, 8


class Session:
    """What the page and the API use; one model lock, any number of runs waiting for it."""

    def __init__(self, folders: Mapping[str, Path]) -> None:
        self._library = Library(folders)
        self._lock = threading.Lock()

    def catalog(self) -> dict[str, Any]:
        """Models, unmaskers, caches and spec fields as plain data."""
        return {"models": self._library.describe()} | catalog.describe()

    def control(self) -> Control:
        """A fresh control for a run."""
        return Control()

    def plan(self, spec: RunSpec) -> dict[str, Any]:
        """The derived plan, the prompt's tokens and the model's context.

        `probe_forwards` is how many exact forwards level `probe` adds at most.
        Raises ValueError naming the field that makes the run impossible.
        """
        derived, scheduled = catalog.derive_plan(spec)
        usable_device(spec.device)
        tokens = len(self._library.tokenizer(spec.model).encode_spec(spec))
        context = self._library.context(spec.model)
        check_context(tokens, spec, context)
        probes = min(spec.probe_steps, derived.max_forwards) if spec.record == "probe" else 0
        counted = {"prompt_tokens": tokens, "context": context, "scheduled": scheduled}
        return dataclasses.asdict(derived) | counted | {"probe_forwards": probes}

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
        Raises ValueError before anything is computed where a spec is impossible; what fails
        later is told by a RunFinished with reason `failed`.
        """
        lanes = {"a": race.a, "b": race.b}
        return self._stream(lanes, control or Control(), parents or {})

    def problem(self, seed: int, shots: int = 0) -> dict[str, Any]:
        """A word problem of the embedded corpus with `shots` worked examples, and its answer."""
        one, prompt = exam(1, seed, shots)[0]
        return {"prompt": prompt, "answer": one.answer}

    def examples(self) -> list[dict[str, Any]]:
        """Prompts to start from."""
        label = f"Word problem {DEFAULT_SEED} after {MANY_SHOTS} worked examples"
        first = {"label": label} | self.problem(DEFAULT_SEED, MANY_SHOTS)
        seeds = (DEFAULT_SEED, 1, 2, 4)
        alone = [{"label": f"Word problem {seed} alone"} | self.problem(seed) for seed in seeds]
        return [first, *alone]

    def default_race(self) -> RaceSpec:
        """Plain decoding against Fast-dLLM's dual cache with threshold 0.9."""
        names = [row["name"] for row in self._library.describe()]
        base = RunSpec(
            model=names[0] if names else "tiny-llada",
            prompt=self.problem(DEFAULT_SEED, MANY_SHOTS)["prompt"],
        )
        knobs = {"threshold.threshold": 0.9}
        return RaceSpec(
            base, dataclasses.replace(base, unmasker="threshold", cache="dual", knobs=knobs)
        )

    def _stream(
        self, specs: Mapping[str, RunSpec], control: Control, parents: Mapping[str, Trace]
    ) -> Iterator[tuple[str, Event]]:
        points = {}
        for name, spec in specs.items():
            self.plan(spec)
            prompt = self._library.tokenizer(spec.model).encode_spec(spec)
            points[name] = branch_point(spec, parents, prompt)
        turn, running, failure = Turn(self._lock), list(specs), ""
        try:
            for name, event in self._events(specs, points, turn, control):
                if isinstance(event, RunFinished):
                    running.remove(name)
                yield name, event
        except Exception as error:  # whatever broke, the page is told and the lock is freed
            failure = explain(error)
        finally:
            turn.release()
        for name in running:
            yield name, RunFinished("failed" if failure else "stopped", NOTHING, message=failure)

    def _events(
        self,
        specs: Mapping[str, RunSpec],
        points: Mapping[str, BranchPoint | None],
        turn: Turn,
        control: Control,
    ) -> Iterator[tuple[str, Event]]:
        lanes: dict[str, Lane] = {}
        for beat in claim(turn, control):
            yield next(iter(specs)), beat
        for name, spec in specs.items():
            if control.state == "stopped":
                return
            if not self._library.is_loaded(spec):
                yield name, Waiting("loading")
            lanes[name] = Lane(self._library.load(spec), spec, points[name])
            lanes[name].warm_up()
        for name, lane in lanes.items():
            yield name, lane.start()
        yield from drive(lanes, turn, control)


def explain(error: Exception) -> str:
    """A failure in plain words with its remedy."""
    if isinstance(error, MemoryError | torch.OutOfMemoryError) or "alloc" in str(error).lower():
        return (
            "The device ran out of memory: lower gen_length, shorten the prompt, or choose a "
            "smaller number format or model. What was held has been given back."
        )
    return f"The run failed: {error}. Change the settings or run it again."
