"""Protocols of the engine's session and run control, so that the inspector does not import them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Protocol, TypeVar

from engine.config.spec import RaceSpec, RunSpec
from engine.core.events import Event
from engine.trace.trace import Trace

Lane = str  # "a" or "b"
LANES: tuple[Lane, ...] = ("a", "b")


class Picture(Protocol):
    """An image in memory; `str(ref)` is its name in a spec and `png` its pixels."""

    @property
    def ref(self) -> Any:
        """Size and digest."""

    @property
    def png(self) -> bytes:
        """The pixels as PNG."""

    def thumbnail(self) -> bytes:
        """A small PNG."""


Pictures = Mapping[str, Picture]


class Control(Protocol):
    """Control of one run. Every method only sets a flag and may be called from any thread."""

    owner: str
    """Who started the run, for their share of the queue; empty if it is not known."""

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

    def check_race(self, race: RaceSpec, plans: Sequence[Mapping[str, Any]]) -> None:
        """Raise ValueError if both lanes, with these plans, do not fit together."""

    def estimate(self, spec: RunSpec, model: str, device: str, **given: Any) -> dict[str, Any]:
        """Work, memory and predicted time of a spec on another model and device.

        `given` may have `prompt_tokens`, `assumptions` and a trace `recorded`. Raises ValueError
        naming what is wrong.
        """

    def takes_images(self, name: str) -> bool:
        """Whether a model takes images."""

    def read_image(self, data: bytes) -> Any:
        """The picture of an image file. Raises ValueError, which names `images` and the remedy."""

    def example_image(self) -> Any:
        """A drawn example image."""

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

    def families(self, model: str = "") -> list[tuple[str, str]]:
        """Label and name of the families of problems that a model knows; `""`: that any knows."""

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
        self,
        race: RaceSpec,
        control: Any,
        parents: Mapping[str, Trace] | None = None,
        images: Any = None,
    ) -> Iterator[tuple[Lane, Event]]:
        """Run both lanes and yield their events. The lane with the smaller run time steps next.

        `parents` maps the trace ids named by the specs' `start` to those traces, `images` the names
        of the specs' images to the pictures.
        """

    def run(
        self,
        spec: RunSpec,
        control: Any,
        parents: Mapping[str, Trace] | None = None,
        images: Any = None,
    ) -> Iterator[Event]:
        """Run one spec and yield its events; `parents` and `images` as in `race`."""


class Task(Protocol):
    """What the page uses of a batch as of a search: work in parts that continue each other."""

    id: str
    state: str

    @property
    def left(self) -> bool:
        """Whether there is something to continue."""

    def run(self, control: Any) -> Iterator[Any]:
        """Do what is left; yields events as they come."""

    def progress(self) -> dict[str, Any]:
        """Id, state, message and counts."""

    def figures(self) -> dict[str, Any]:
        """`progress`, and all figures so far."""


T = TypeVar("T", bound=Task, covariant=True)


class Tasks(Protocol[T]):
    """The tasks of one kind."""

    def get(self, name: Any) -> T:
        """The task of an id, which may be any untrusted value; ValueError if it is gone."""


class Batch(Task, Protocol):
    """The part of a batch of the engine that the page uses."""

    @property
    def done(self) -> int:
        """Number of runs that are over."""

    def run(self, control: Any, first: int | None = None) -> Iterator[Any]:
        """Run what is left, or what is left of the `first` prompts; yields events as they come."""

    def rows(self, first: int, most: int) -> list[dict[str, Any]]:
        """At most so many finished runs, from the one with the number `first` on."""

    def aggregates(self) -> dict[str, Any]:
        """The aggregates of the recorded runs by setting; ValueError if nothing is recorded."""

    def race(self, prompt: int, setting: int) -> RaceSpec:
        """The race of a prompt: the first setting against another; ValueError for wrong indices."""

    def answer(self, prompt: int) -> str | None:
        """The right answer to a prompt, None if it is not known."""


class Batches(Tasks[Batch], Protocol):
    """The part of the engine's batch service that the page uses."""

    def describe(self) -> dict[str, Any]:
        """The limits `prompts`, `settings`, `runs`, `seconds` and the recording `levels`."""

    def count(self, source: Mapping[str, Any]) -> tuple[int, int]:
        """Numbers of prompts and of known answers of a source; ValueError as `open`."""

    def open(
        self, source: Mapping[str, Any], base: RunSpec, settings: Any, record: str = "off"
    ) -> Batch:
        """A new batch of plain decoding and other settings; ValueError naming the field."""


class Search(Task, Protocol):
    """The part of a search for settings that the page uses."""

    def estimate(self, control: Any) -> Iterator[Any]:
        """Time plain decoding, and say how long the search takes at most."""

    def race(self, name: Any) -> RaceSpec:
        """The race of a measured setting against plain decoding; ValueError for another name."""

    @property
    def answer(self) -> str | None:
        """The right answer to the prompt of `race`, None if it is not known."""


class Searches(Tasks[Search], Protocol):
    """The part of the engine's search service that the page uses."""

    def describe(self) -> dict[str, Any]:
        """The limits, the methods `caches` to choose from, and the `kinds` of what is kept."""

    def open(self, source: Mapping[str, Any], base: RunSpec, cache: Any, **asked: Any) -> Search:
        """A new search; ValueError naming the field."""
