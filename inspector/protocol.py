"""Protocols of the engine's session and run control, so that the inspector does not import them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Protocol

from engine.config.spec import RaceSpec, RunSpec
from engine.core.events import Event
from engine.trace.trace import Trace

Lane = str  # "a" or "b"
LANES: tuple[Lane, ...] = ("a", "b")


class Control(Protocol):
    """Control of one run. Every method only sets a flag and may be called from any thread."""

    @property
    def state(self) -> str:
        """`running`, `paused` or `stopped`."""

    def pause(self) -> None:
        """Pause before the next step."""

    def resume(self) -> None:
        """Continue after a pause."""

    def step(self) -> None:
        """Take one step, then pause."""

    def stop(self) -> None:
        """End before the next step."""


class Session(Protocol):
    """The part of the engine's session that the page uses."""

    def catalog(self) -> dict[str, Any]:
        """The models, unmaskers, caches and their fields as plain data."""

    def plan(self, spec: RunSpec) -> dict[str, Any]:
        """The plan derived from a spec: blocks, forwards, memory.

        Raises ValueError, which names the field and how to correct it.
        """

    def resolve(self, race: RaceSpec) -> RaceSpec:
        """The race with the end-of-text rule of each lane in its `eos`; ValueError as `plan`."""

    def what_if(self, trace: Trace, step: int, settings: Mapping[str, str]) -> dict[str, Any]:
        """What a recorded step would have committed under other settings of its unmasker.

        Plain data and arrays, see `engine.generate.what_if`. Raises ValueError, which names the
        field or says what the trace lacks.
        """

    def problem(self, seed: int, shots: int, family: str | None) -> dict[str, Any]:
        """A problem as `prompt`, `answer` and `answer_tokens`; `shots` worked examples precede it.

        `family` is a name of `families`, None for the first one.
        """

    def families(self) -> list[tuple[str, str]]:
        """Label and name of the families of problems."""

    def embedded_suite(self) -> dict[str, Any]:
        """The embedded models' families, training and limits (`engine.tiny.suite`)."""

    def default_shots(self) -> int:
        """The number of worked examples before the problem of the default race."""

    def default_race(self) -> RaceSpec:
        """The race that the page's form shows at first."""

    def examples(self) -> list[dict[str, Any]]:
        """Example problems, each with `label` and the fields of `problem`."""

    def control(self) -> Control:
        """A new control for one run."""

    def race(
        self, race: RaceSpec, control: Any, parents: Mapping[str, Trace] | None = None
    ) -> Iterator[tuple[Lane, Event]]:
        """Run both lanes and yield their events. The lane with the smaller run time steps next.

        `parents` maps the trace ids named by the specs' `start` to those traces.
        """

    def run(
        self, spec: RunSpec, control: Any, parents: Mapping[str, Trace] | None = None
    ) -> Iterator[Event]:
        """Run one spec and yield its events; `parents` as in `race`."""
