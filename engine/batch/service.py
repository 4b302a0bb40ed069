"""Batches for a page or an API: bounded, held in memory, run in parts that continue each other."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Protocol

from engine.batch.journal import Journal
from engine.batch.prompts import MAX_PROMPTS, Prompt, prompts_of
from engine.batch.recordings import LEVELS, Recordings
from engine.batch.results import BatchResults
from engine.batch.runner import (
    MAX_RUNS,
    Finished,
    Recorded,
    batch_events,
    check_runs,
    check_size,
)
from engine.batch.settings import PLAIN, NamedSpec, batch_settings, named_specs, plain_decoding
from engine.batch.tasks import Task, TaskStore
from engine.config.spec import RaceSpec, RunSpec
from engine.core.control import Control
from engine.core.events import Event, RunStarted

KEPT_RUNS = 40_000  # of all batches that are held
KEPT_BATCHES = 64
MAX_NAME = 80


class Runs(Protocol):
    """The part of a session that batches use."""

    def run(self, spec: RunSpec, control: Any) -> Iterator[Event]:
        """The events of one run."""

    def plan(self, spec: RunSpec) -> dict[str, Any]:
        """The plan of a spec; ValueError naming the field that makes it impossible."""


@dataclass(frozen=True)
class BatchLimits:
    """Bounds of a batch.

    `seconds` is the time that a batch may compute until somebody continues it; None: any.
    """

    prompts: int = MAX_PROMPTS
    settings: int = 16
    runs: int = MAX_RUNS
    seconds: float | None = None

    def check(self, prompts: int, settings: int) -> None:
        """Raise ValueError naming `prompts` or `settings` and the limit."""
        for name, given, most in (
            ("settings", settings, self.settings),
            ("prompts", prompts, self.prompts),
        ):
            if given > most:
                raise ValueError(
                    f"{name}: {given} are more than the {most} of a batch here; take fewer, or "
                    "use python -m engine batch on a machine of your own"
                )
        check_runs(prompts, settings, self.runs)


PUBLIC = BatchLimits(prompts=50, settings=5, runs=200, seconds=120.0)


class Batch(Task):
    """Prompts under several settings: their results so far, and the runs that are left.

    An estimate runs the first prompt.
    """

    kind: ClassVar[str] = "batch"

    def __init__(
        self,
        session: Runs,
        settings: Sequence[NamedSpec],
        prompts: Sequence[Prompt],
        record: str = "off",
        seconds: float | None = None,
    ) -> None:
        super().__init__(seconds)
        self.results = BatchResults(settings, prompts)
        self.recordings = None if record == "off" else Recordings(record)
        self.seconds_left: float | None = None
        self.environment: Mapping[str, Any] = {}
        self._session, self._journal = session, Journal()
        self._order: list[tuple[int, int]] = []  # prompt and setting of the runs that are over
        self._cut = False  # whether a part was stopped, which may have been within a recording

    @property
    def done(self) -> int:
        """Number of runs that are over."""
        return len(self._order)

    @property
    def total(self) -> int:
        """Number of runs in all."""
        return len(self.results.prompts) * len(self.results.settings)

    @property
    def left(self) -> bool:
        """Whether there are runs that are not over, or may be some that are not recorded."""
        return self.done < self.total or self._cut

    def run(self, control: Control, first: int | None = None) -> Iterator[Event | Finished]:
        """Run what is left, or what is left of the `first` prompts; yields events as they come.

        Runs that failed are tried again, after all others. Raises ValueError if the batch is
        running.
        """
        yield from self._part(control, lambda: self._run(control, first))

    def _run(self, control: Control, first: int | None) -> Iterator[Event | Finished]:
        events = batch_events(
            lambda spec: self._session.run(spec, control), self.results.settings,
            self.results.prompts, self._journal, lambda spec: {}, control, self.recordings, first,
            self._failed(),
        )  # fmt: skip
        self._cut = self.recordings is not None
        passed = 0  # runs of this part, which may try again what failed in an earlier one
        for event in self._timed(events):
            if isinstance(event, RunStarted):
                self.environment = self.environment or event.environment
            elif isinstance(event, Finished):
                passed = event.done
                self._add(event)
            if not isinstance(event, Recorded):
                yield event
            ran = isinstance(event, Recorded) or (isinstance(event, Finished) and not event.resumed)
            if ran and self._over and passed < self.total:
                self._stop_at_limit()
                return
        if control.state != "stopped":
            self._cut = False
            self.state = "estimated" if self.left else "done"

    def figures(self) -> dict[str, Any]:
        """What is known so far, without the rows of the prompts.

        `batch` (the id), `state`, `message`, `done` of `total` runs, `prompts`, `seconds_left`
        (None: not known), `record`, `environment`, `settings` (see `BatchResults.summary`), each
        with `recorded` (runs in its aggregates) and `recording_problem`.
        """
        rows = self.results.summary()
        for index, row in enumerate(rows):
            held = self.recordings
            row["recorded"] = held.aggregates(index).runs if held else 0
            row["recording_problem"] = held.problem(index) if held else ""
        return self.progress() | {
            "prompts": len(self.results.prompts), "settings": rows,
            "record": self.recordings.level if self.recordings else "off",
            "environment": dict(self.environment),
        }  # fmt: skip

    def progress(self) -> dict[str, Any]:
        """The parts of `figures` that change with every run."""
        return {
            "batch": self.id, "state": self.state, "message": self.message, "done": self.done,
            "total": self.total, "seconds_left": self.seconds_left,
        }  # fmt: skip

    def rows(self, first: int, most: int) -> list[dict[str, Any]]:
        """At most so many runs that are over, from the one with the number `first` on.

        A row has `prompt` and `setting` (indices), `text_of_prompt`, `known_answer`, and the fields
        of a run of `BatchResults.table`.
        """
        found = []
        for prompt, setting in self._order[max(first, 0) :][:most]:
            row = self.results.run(prompt, setting)
            assert row is not None, "its run is over"
            known = self.results.prompts[prompt]
            own = {"prompt": prompt, "setting": setting, "text_of_prompt": known.prompt}
            found.append(own | {"known_answer": known.answer} | row)
        return found

    def aggregates(self) -> dict[str, Any]:
        """The aggregates (`Recordings.to_dict`). Raises ValueError if nothing is recorded."""
        if self.recordings is None:
            raise ValueError("record: this batch is not recorded; run it with a recording level")
        return self.recordings.to_dict([one.name for one in self.results.settings])

    def race(self, prompt: int, setting: int) -> RaceSpec:
        """The race of a prompt: the first setting against another. ValueError for wrong indices."""
        settings, prompts = self.results.settings, self.results.prompts
        if not (0 <= prompt < len(prompts) and 0 <= setting < len(settings)):
            raise ValueError("batch: it has no such prompt or setting")
        chosen = (settings[0], settings[setting])
        return RaceSpec(*(replace(s.spec, prompt=prompts[prompt].prompt) for s in chosen))

    def answer(self, prompt: int) -> str | None:
        """The right answer to a prompt (index), None if it is not known."""
        return self.results.prompts[prompt].answer

    def _failed(self) -> set[tuple[int, int]]:
        """Prompt and setting of the runs that are over and failed."""
        outcomes = {pair: self.results.outcome(pair[1], pair[0]) for pair in self._order}
        return {pair for pair, one in outcomes.items() if one is not None and one.reason != "done"}

    def _add(self, one: Finished) -> None:
        self.seconds_left = one.seconds_left if one.seconds_left is not None else self.seconds_left
        new = self.results.outcome(one.setting, one.prompt) is None
        self.results.add(one.setting, one.prompt, one.outcome)
        if new:  # after its result is there, because others read both
            self._order.append((one.prompt, one.setting))


class BatchService:
    """Batches by id, with the limits of a page; see `TaskStore` for which of them are dropped.

    `session` runs the specs; `public` applies `PUBLIC`.
    """

    def __init__(
        self, session: Runs, public: bool = False, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.limits = PUBLIC if public else BatchLimits()
        self._session = session
        self._held = TaskStore(Batch.kind, _too_many, clock)

    def describe(self) -> dict[str, Any]:
        """The limits `prompts`, `settings`, `runs` and `seconds`, and the recording `levels`."""
        known = ("prompts", "settings", "runs", "seconds")
        return {name: getattr(self.limits, name) for name in known} | {"levels": list(LEVELS)}

    def count(self, source: Mapping[str, Any]) -> tuple[int, int]:
        """Numbers of prompts and of known answers of a source; ValueError as `open`."""
        prompts = prompts_of(source)
        self.limits.check(len(prompts), 1)
        return len(prompts), sum(one.answer is not None for one in prompts)

    def open(
        self, source: Mapping[str, Any], base: RunSpec, settings: Any, record: str = "off"
    ) -> Batch:
        """A new batch of plain decoding and other settings, checked but not run.

        Args:
            source: one of `text` (a prompt a line), `file` (the bytes of a JSONL file), `rows`
                (a list of objects with `prompt` and optionally `answer`) and `problems` (an object
                with `family`, `count`, `shots` and `seed`).
            base: the settings that others are derived from; plain decoding has its lengths.
            settings: a list of {"name", fields of a spec} over `base`.
            record: `off` or a recording level.

        Raises ValueError naming `prompts`, `settings`, `record` or the field of a spec.
        """
        prompts = prompts_of(source)
        named = self._settings(base, settings)
        self.limits.check(len(prompts), len(named))
        check_size(named, prompts)
        if record not in ("off", *LEVELS):
            raise ValueError(f"record: choose from off, {', '.join(LEVELS)}")
        number, longest = max(enumerate(prompts, 1), key=lambda one: len(one[1].prompt))
        for one in named:
            self._check(one, number, longest, record)
        return self._held.add(Batch(self._session, named, prompts, record, self.limits.seconds))

    def get(self, name: Any) -> Batch:
        """The batch of an id, which may be any untrusted value. Raises ValueError if it is gone."""
        return self._held.get(name)

    def _settings(self, base: RunSpec, rows: Any) -> list[NamedSpec]:
        """Plain decoding and the settings of `rows`, all with one end-of-text rule."""
        if not isinstance(rows, list) or len(rows) >= max(self.limits.settings, 1) * 4:
            raise ValueError(
                f"settings: expected a list of at most {self.limits.settings - 1} objects"
            )
        named = [
            NamedSpec(PLAIN, plain_decoding(base)),
            *(named_specs(rows, base) if rows else []),
        ]
        for one in named:
            if not 0 < len(one.name.strip()) <= MAX_NAME:
                raise ValueError(f"settings: a name has 1 to {MAX_NAME} characters")
        return batch_settings(named)

    def _check(self, one: NamedSpec, number: int, longest: Prompt, record: str) -> None:
        """Refuse a setting whose run of the longest prompt, of this number, is impossible."""
        spec = replace(one.spec, prompt=longest.prompt, messages=(), record=record)
        try:
            self._session.plan(spec)
        except ValueError as error:
            said = re.sub("^prompt:", f"prompt {number}:", str(error))
            raise ValueError(f"{one.name}: {said}") from None


def _too_many(batches: Collection[Batch]) -> bool:
    """Whether some of the batches must be dropped."""
    return len(batches) > KEPT_BATCHES or sum(one.total for one in batches) > KEPT_RUNS
