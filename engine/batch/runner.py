"""Run a batch: every prompt under every setting, resumed from a journal."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Collection, Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Any

from engine.batch.journal import Journal, run_key
from engine.batch.outcome import Outcome, OutcomeBuilder
from engine.batch.prompts import Prompt
from engine.batch.recordings import RecordedRun, Recordings
from engine.batch.settings import NamedSpec
from engine.config.spec import RunSpec
from engine.core.control import Control
from engine.core.events import Event, QueueFullError, RunStarted, Waiting

MAX_RUNS = 20_000
Run = Callable[[RunSpec], Iterator[Event]]


@dataclass(frozen=True)
class Finished:
    """A run of the batch that is over.

    `resumed`: it was read from the journal. `done` of `total` runs are over, and the others need
    about `seconds_left` (None: not known yet). It took `seconds`, without waiting for its turn and
    the loading of its model; 0 if it was not run now.
    """

    setting: int
    prompt: int
    outcome: Outcome
    resumed: bool
    done: int
    total: int
    seconds_left: float | None
    seconds: float = 0.0


def check_size(settings: Sequence[NamedSpec], prompts: Sequence[Prompt]) -> None:
    """Raise ValueError naming `prompts` or `settings` if the batch is empty or too large."""
    if not settings or not prompts:
        raise ValueError(
            f"{'prompts' if settings else 'settings'}: there are none; give at least one"
        )
    if len({one.name for one in settings}) < len(settings):
        raise ValueError("settings: two have the same name; give each its own")
    check_runs(len(prompts), len(settings), MAX_RUNS)


def check_runs(prompts: int, settings: int, most: int) -> None:
    """Raise ValueError naming `prompts` if a batch has more than `most` runs."""
    if (runs := prompts * settings) > most:
        raise ValueError(
            f"prompts: {prompts} prompts under {settings} settings are {runs} runs, more than "
            f"{most}; take fewer of either"
        )


@dataclass(frozen=True)
class Recorded:
    """A run of the batch that was recorded, or why it was not."""

    setting: int
    prompt: int
    problem: str


def run_batch(
    run: Run,
    settings: Sequence[NamedSpec],
    prompts: Sequence[Prompt],
    journal: Journal,
    environment: Callable[[RunSpec], Mapping[str, Any]],
    control: Control | None = None,
) -> Iterator[Finished]:
    """Run every prompt under every setting, prompt by prompt, so that the settings take turns.

    Runs whose key the journal has are not run again. The others are kept there when they are done.
    Settings with the same spec have runs of their own, so that their times can be compared. After a
    stop of `control` nothing more is run; a run that fails does not end the batch.

    Args:
        run: the events of a spec, for example `Session.run` with the same control.
        settings: the first is the one that the others are compared with.
        prompts: each takes the place of the settings' own prompt.
        journal: the outcomes of an earlier, interrupted batch.
        environment: machine, versions and checkpoint of a spec's run.
        control: Stop.
    """
    events = batch_events(run, settings, prompts, journal, environment, control)
    return (one for one in events if isinstance(one, Finished))


def batch_events(
    run: Run,
    settings: Sequence[NamedSpec],
    prompts: Sequence[Prompt],
    journal: Journal,
    environment: Callable[[RunSpec], Mapping[str, Any]],
    control: Control | None = None,
    recordings: Recordings | None = None,
    first: int | None = None,
    last: Collection[tuple[int, int]] = (),
) -> Iterator[Event | Finished | Recorded]:
    """As `run_batch`, with the events of each run before its end.

    `recordings` are aggregates, to which each run is added by a second one with the recorder on.
    `first`: stop after so many prompts; the time that is left is still that of all of them.
    `last` are the prompt and the setting of runs that come after all others.
    """
    check_size(settings, prompts)
    specs = [one.spec for one in settings]
    where = _environments(specs, journal, environment)
    if recordings is not None:
        recordings.begin(specs, prompts, where)
    keys = {
        (index, setting): run_key(_with_prompt(spec, prompt), prompt.answer, where[setting])
        for (index, prompt), (setting, spec) in product(enumerate(prompts), enumerate(specs))
    }
    missing = Counter(setting for (_, setting), key in keys.items() if journal.get(key) is None)
    clock = _Clock(len(settings), len(prompts), missing, _unrecorded(keys, recordings))
    run = clock.timed(run)
    pairs = product(range(len(prompts[:first])), range(len(settings)))
    for index, setting in sorted(pairs, key=lambda pair: pair in last):
        prompt, key = prompts[index], keys[index, setting]
        spec = _with_prompt(specs[setting], prompt)
        kept, seconds = journal.get(key), 0.0
        if kept is None:
            if control is not None and control.state == "stopped":
                return
            outcome = yield from _outcome(run, spec, prompt)
            if outcome.reason == "stopped":
                return
            seconds = clock.add(setting)
            if outcome.reason == "done":
                journal.put(key, outcome)
        else:
            outcome = kept
            clock.skip(setting, kept.ms / 1e3)
        due = recordings is not None and recordings.due(setting, key)
        clock.unrecorded[setting] -= due  # its recording follows
        yield Finished(
            setting, index, outcome, kept is not None, clock.done, clock.total, clock.left(),
            seconds,
        )  # fmt: skip
        if recordings is None or outcome.reason != "done" or not due:
            continue
        if control is None or control.state != "stopped":
            problem = yield from _record(run, spec, outcome, recordings, setting, key)
            clock.add_recording(setting)
            yield Recorded(setting, index, problem)


def _environments(
    specs: Sequence[RunSpec], journal: Journal, environment: Callable[[RunSpec], Mapping[str, Any]]
) -> list[dict[str, Any]]:
    """What the key of a run names beside its spec; equal specs get runs of their own."""
    found, before = [], Counter[RunSpec]()
    for spec in specs:
        again = {"repetition": before[spec]} if before[spec] else {}
        found.append({**environment(spec), **journal.version(spec), **again})
        before[spec] += 1
    return found


def _unrecorded(keys: Mapping[tuple[int, int], str], recordings: Recordings | None) -> Counter[int]:
    """Numbers of runs whose recording is left, by setting."""
    if recordings is None:
        return Counter()
    return Counter(setting for (_, setting), key in keys.items() if recordings.due(setting, key))


def _with_prompt(spec: RunSpec, prompt: Prompt) -> RunSpec:
    return replace(spec, prompt=prompt.prompt, messages=())


def _outcome(run: Run, spec: RunSpec, prompt: Prompt) -> Generator[Event, None, Outcome]:
    """Yield the events of a run; returns its outcome. One that is refused has failed.

    Raises QueueFullError.
    """
    found = OutcomeBuilder(prompt.answer)
    try:
        for event in run(spec):
            found.append(event)
            yield event
    except QueueFullError:
        raise
    except ValueError as error:
        return Outcome("failed", str(error))
    return found.outcome()


def _record(
    run: Run, spec: RunSpec, timed: Outcome, recordings: Recordings, setting: int, key: str
) -> Generator[Event, None, str]:
    """Yield the events of a run with the recorder on; returns why it was not added, or ""."""
    recorded = RecordedRun()
    try:
        for event in run(recordings.spec(spec)):
            recorded.append(event)
            yield event
    except QueueFullError:
        raise
    except ValueError as error:
        recordings.leave_out(setting, key, str(error))
        return str(error)
    if recorded.stopped:
        return "the recording was stopped"
    problem = recorded.problem(timed)
    if problem:
        recordings.leave_out(setting, key, problem)
    else:
        recordings.add(setting, key, recorded.trace)
    return problem


class _Mean:
    """A mean of seconds; `add` them one by one."""

    def __init__(self) -> None:
        self.count, self.total = 0, 0.0

    def add(self, seconds: float) -> None:
        self.count += 1
        self.total += seconds

    def value(self, otherwise: float) -> float:
        return self.total / self.count if self.count else otherwise


class _Clock:
    """How many runs are over, and what the others will take by the mean of their setting.

    `missing` are the numbers of runs that are not kept, by setting, `unrecorded` those of runs
    whose recording is left. The time of a run begins when it computes, after the queue and the
    loading of its model. Of a setting without such a run the times of its kept ones count, and a
    recording is taken to last as long as the run until one was made.
    """

    def __init__(
        self,
        settings: int,
        prompts: int,
        missing: Mapping[int, int],
        unrecorded: Mapping[int, int],
    ) -> None:
        self._settings, self._prompts = settings, prompts
        self._missing, self.unrecorded = Counter(missing), Counter(unrecorded)
        self._over: Counter[int] = Counter()
        self._all = _Mean()
        self._timed = [_Mean() for _ in range(settings)]
        self._kept = [_Mean() for _ in range(settings)]
        self._recorded = [_Mean() for _ in range(settings)]
        self._begun: float | None = None  # when the last run began, until it is counted

    def timed(self, run: Run) -> Run:
        """`run`, whose last run is the one that `add` and `add_recording` count."""

        def events(spec: RunSpec) -> Iterator[Event]:
            self._begun, started = time.perf_counter(), False
            for event in run(spec):
                yield event
                started = started or isinstance(event, RunStarted)
                if isinstance(event, Waiting) and not started:
                    self._begun = time.perf_counter()

        return events

    @property
    def done(self) -> int:
        return self._over.total()

    @property
    def total(self) -> int:
        return self._settings * self._prompts

    def skip(self, setting: int, seconds: float) -> None:
        """Count a kept run of so many seconds."""
        self._over[setting] += 1
        self._kept[setting].add(seconds)

    def add(self, setting: int) -> float:
        """Count the last run; returns its seconds."""
        seconds = self._seconds()
        self._over[setting] += 1
        self._missing[setting] -= 1
        self._timed[setting].add(seconds)
        self._all.add(seconds)
        return seconds

    def add_recording(self, setting: int) -> None:
        self._recorded[setting].add(self._seconds())

    def _seconds(self) -> float:
        """Seconds of the last run; 0 if it was refused before it began."""
        begun, self._begun = self._begun, None
        return 0.0 if begun is None else time.perf_counter() - begun

    def left(self) -> float | None:
        known = all(
            own.count or not self._missing[one] + self.unrecorded[one]
            for one, own in enumerate(self._kept)
        )
        if not self._all.count and not known:
            return None
        mean, left = self._all.value(0), 0.0
        for one in range(self._settings):
            own = self._timed[one].value(self._kept[one].value(mean))
            left += self._missing[one] * own
            left += self.unrecorded[one] * self._recorded[one].value(own)
        return left
