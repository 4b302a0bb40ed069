"""Recordings: the runs of a batch again with the recorder on, added to aggregates by setting."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from engine.batch.aggregates import Aggregates
from engine.batch.outcome import Outcome, OutcomeBuilder
from engine.batch.prompts import Prompt
from engine.config.spec import RunSpec
from engine.core.events import Event, Waiting
from engine.core.files import write_atomically
from engine.distributed.keyed_lines import key_of
from engine.trace.trace import Trace

LEVELS = ("steps", "layers", "probe")


class Recordings:
    """Aggregates of a batch by setting (index), filled run by run.

    A run is recorded after it was timed, in a run of its own, so that no time contains a recording.
    With a `folder` the aggregates of each setting are kept there after each run, and an
    interrupted batch of the same prompts, settings, checkpoint and machine continues from them.
    A damaged file is left out and its runs are recorded again. `to_dict` may be called from another
    thread while runs are added.
    """

    def __init__(self, level: str, folder: Path | None = None) -> None:
        if level not in LEVELS:
            raise ValueError(f"record: {level!r} is unknown; choose from {', '.join(LEVELS)}")
        self.level = level
        self._folder = folder
        self._paths: dict[int, Path] = {}
        self._lock = threading.Lock()  # no aggregates are read while a run is added to them
        self._found: dict[int, Aggregates] = {}
        self._problems: dict[int, str] = {}
        self._left_out: dict[int, set[str]] = {}

    def begin(
        self, specs: Sequence[RunSpec], prompts: Sequence[Prompt], where: Sequence[Mapping]
    ) -> None:
        """Read what is kept for a batch: its specs and the environment of each."""
        shown = [[one.prompt, one.answer] for one in prompts]
        for index, (spec, place) in enumerate(zip(specs, where, strict=True)):
            self._found.setdefault(index, Aggregates())
            if self._folder is None:
                continue
            key = key_of([self.level, spec.to_dict(), shown, {**place}])
            path = self._paths[index] = self._folder / f"{key}.npz"
            if path.is_file() and not self._found[index].runs:
                self._found[index] = _read(path)

    def due(self, setting: int, key: str) -> bool:
        """Whether the run of a key still has to be recorded."""
        done = self.aggregates(setting).keys | self._left_out.get(setting, set())
        return key not in done

    def spec(self, spec: RunSpec) -> RunSpec:
        """The spec of a run with the recorder on."""
        return replace(spec, record=self.level)

    def aggregates(self, setting: int) -> Aggregates:
        """The aggregates of a setting (index)."""
        return self._found.get(setting) or Aggregates()

    def problem(self, setting: int) -> str:
        """Why runs of a setting are not in the aggregates; empty if all are."""
        return self._problems.get(setting, "")

    def leave_out(self, setting: int, key: str, message: str) -> None:
        """Do not add the run of a key, for a reason."""
        left_out = self._left_out.setdefault(setting, set())
        left_out.add(key)
        self._problems[setting] = f"{len(left_out)} left out; the last one: {message}"

    def add(self, setting: int, key: str, trace: Trace) -> None:
        """Add a recorded run and keep the aggregates before returning."""
        found = self._found.setdefault(setting, Aggregates())
        with self._lock:
            found.add(key, trace)
        if setting in self._paths:
            write_atomically(self._paths[setting], found.to_bytes())

    def to_dict(self, names: Sequence[str]) -> dict[str, Any]:
        """`level` and `settings`: a row for each of `names` with `name`, `problem`, aggregates."""
        with self._lock:
            rows = [
                {"name": name, "problem": self.problem(index)} | self.aggregates(index).to_dict()
                for index, name in enumerate(names)
            ]
        return {"level": self.level, "settings": rows}


class RecordedRun:
    """The trace of a recorded run, and whether its tokens are those of the timed run."""

    def __init__(self) -> None:
        self.trace = Trace()
        self._outcome = OutcomeBuilder(None)

    def append(self, event: Event) -> None:
        """Append the next event."""
        if not isinstance(event, Waiting):
            self.trace.append(event)
        self._outcome.append(event)

    @property
    def stopped(self) -> bool:
        """Whether the run was stopped."""
        return self.trace.meta["reason"] == "stopped"

    def problem(self, timed: Outcome) -> str:
        """Why the run cannot be added to the aggregates; empty if it can."""
        found = self._outcome.outcome()
        if found.reason != "done":
            return found.message or f"the recording was {found.reason}"
        if found.ids != timed.ids:
            return "a recorded run gave other tokens than the timed run and is left out"
        return ""


def _read(path: Path) -> Aggregates:
    try:
        return Aggregates.from_bytes(path.read_bytes())
    except (ValueError, OSError):
        return Aggregates()
