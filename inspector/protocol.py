"""What the inspector asks of the engine's session, so that it needs no import of it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Protocol

from engine.events import Event
from engine.spec import RaceSpec, RunSpec
from engine.trace import Trace

Lane = str  # "a" or "b"
LANES: tuple[Lane, ...] = ("a", "b")


class Control(Protocol):
    """The flags of one run; every method only sets a flag and may be called from any thread."""

    @property
    def state(self) -> str:
        """`running`, `paused` or `stopped`."""

    def pause(self) -> None:
        """Hold before the next step."""

    def resume(self) -> None:
        """Go on."""

    def step(self) -> None:
        """Take one step, then hold."""

    def stop(self) -> None:
        """End before the next step."""


class Session(Protocol):
    """The engine as the page sees it."""

    def catalog(self) -> dict[str, Any]:
        """Models, unmaskers and caches with their fields, as plain data."""

    def plan(self, spec: RunSpec) -> dict[str, Any]:
        """What a spec comes to; ValueError names the field and the remedy."""

    def problem(self, seed: int, shots: int) -> dict[str, Any]:
        """A word problem: `prompt` and `answer`."""

    def default_race(self) -> RaceSpec:
        """The race that the page opens with."""

    def examples(self) -> list[dict[str, Any]]:
        """Problems to start from: `label`, `prompt`, `answer`."""

    def control(self) -> Control:
        """Fresh flags for one run."""

    def race(
        self, race: RaceSpec, control: Any, parents: Mapping[str, Trace] | None = None
    ) -> Iterator[tuple[Lane, Event]]:
        """Both runs, the lane whose own clock is behind taking the next step.

        `parents` are the traces, by id, that a spec's `start` names.
        """

    def run(
        self, spec: RunSpec, control: Any, parents: Mapping[str, Trace] | None = None
    ) -> Iterator[Event]:
        """One run."""
