"""Run a batch: every prompt under every setting, resumed from a journal."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from engine.batch.journal import Journal, run_key
from engine.batch.outcome import Outcome, outcome_of
from engine.batch.prompts import Prompt
from engine.batch.settings import NamedSpec
from engine.config.spec import RunSpec
from engine.core.control import Control
from engine.core.events import Event

MAX_RUNS = 20_000
Run = Callable[[RunSpec], Iterator[Event]]


@dataclass(frozen=True)
class Finished:
    """A run of the batch that is over.

    `resumed`: it was read from the journal. `done` of `total` runs are over, and the others need
    about `seconds_left` (None before the first one was timed).
    """

    setting: int
    prompt: int
    outcome: Outcome
    resumed: bool
    done: int
    total: int
    seconds_left: float | None


def check_size(settings: Sequence[NamedSpec], prompts: Sequence[Prompt]) -> None:
    """Raise ValueError naming `prompts` or `settings` if the batch is empty or too large."""
    if not settings or not prompts:
        raise ValueError(
            f"{'prompts' if settings else 'settings'}: there are none; give at least one"
        )
    if len({one.name for one in settings}) < len(settings):
        raise ValueError("settings: two have the same name; give each its own")
    runs = len(settings) * len(prompts)
    if runs > MAX_RUNS:
        raise ValueError(
            f"prompts: {len(prompts)} prompts under {len(settings)} settings are {runs} runs, more "
            f"than {MAX_RUNS}; take fewer of either"
        )


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
    After a stop of `control` nothing more is run; a run that fails does not end the batch.

    Args:
        run: the events of a spec, for example `Session.run` with the same control.
        settings: the first is the one that the others are compared with.
        prompts: each takes the place of the settings' own prompt.
        journal: the outcomes of an earlier, interrupted batch.
        environment: machine, versions and checkpoint of a spec's run.
        control: Stop.
    """
    check_size(settings, prompts)
    where = [environment(one.spec) for one in settings]
    clock = _Clock(len(settings), len(prompts))
    for index, prompt in enumerate(prompts):
        for setting, named in enumerate(settings):
            spec = replace(named.spec, prompt=prompt.prompt, messages=())
            key = run_key(spec, prompt.answer, where[setting])
            kept = journal.get(key)
            if kept is None:
                if control is not None and control.state == "stopped":
                    return
                begun = time.perf_counter()
                outcome = _outcome(run, spec, prompt)
                if outcome.reason == "stopped":
                    return
                clock.add(setting, time.perf_counter() - begun)
                if outcome.reason == "done":
                    journal.put(key, outcome)
            else:
                outcome = kept
                clock.skip(setting)
            yield Finished(
                setting, index, outcome, kept is not None, clock.done, clock.total, clock.left()
            )


def _outcome(run: Run, spec: RunSpec, prompt: Prompt) -> Outcome:
    """The outcome of a run; one that is refused has failed."""
    try:
        return outcome_of(run(spec), prompt.answer)
    except ValueError as error:
        return Outcome("failed", str(error))


class _Clock:
    """How many runs are over, and what the others will take by the mean of their setting."""

    def __init__(self, settings: int, prompts: int) -> None:
        self._settings, self._prompts = settings, prompts
        self._over: Counter[int] = Counter()
        self._timed: Counter[int] = Counter()
        self._seconds: Counter[int] = Counter()

    @property
    def done(self) -> int:
        return self._over.total()

    @property
    def total(self) -> int:
        return self._settings * self._prompts

    def skip(self, setting: int) -> None:
        self._over[setting] += 1

    def add(self, setting: int, seconds: float) -> None:
        self._over[setting] += 1
        self._timed[setting] += 1
        self._seconds[setting] += seconds  # type: ignore[assignment]

    def left(self) -> float | None:
        runs = self._timed.total()
        if not runs:
            return None
        mean = sum(self._seconds.values()) / runs
        return sum(
            (self._prompts - self._over[one])
            * (self._seconds[one] / self._timed[one] if self._timed[one] else mean)
            for one in range(self._settings)
        )
