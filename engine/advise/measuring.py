"""Measuring settings on prompts: runs by turns, kept in a journal, and what they show."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from engine.advise.kept import Kept, kept
from engine.batch.journal import Journal
from engine.batch.outcome import Outcome
from engine.batch.prompts import Prompt
from engine.batch.results import BatchResults
from engine.batch.runner import Finished, Run, run_batch
from engine.batch.settings import NamedSpec
from engine.config.spec import RunSpec
from engine.core.control import Control


@dataclass(frozen=True)
class Progress:
    """`done` of `total` runs of a stage are over; the others need about `seconds_left` (None: ?)."""

    stage: str
    done: int
    total: int
    seconds_left: float | None = None


@dataclass(frozen=True)
class Measured:
    """A setting on some prompts, beside plain decoding on the same ones.

    `speed_up` is the median of the ratios of both times; `kept` is None if it cannot be judged.
    `outcomes` are those of the setting's runs.
    """

    named: NamedSpec
    speed_up: float
    kept: Kept | None
    outcomes: tuple[Outcome, ...]

    @property
    def ms(self) -> float:
        """Mean milliseconds of a run."""
        return sum(one.ms for one in self.outcomes) / len(self.outcomes)

    @property
    def recomputed(self) -> float:
        """Mean share of rows recomputed."""
        return sum(one.recomputed for one in self.outcomes) / len(self.outcomes)


class Measuring:
    """Runs settings on prompts beside plain decoding, each pair of them once.

    `plain` is the setting that the others are compared with, `kind` what is kept of it. `done`
    counts the runs of settings other than plain decoding, those resumed from the journal included.
    """

    def __init__(
        self,
        run: Run,
        environment: Callable[[RunSpec], Mapping[str, Any]],
        plain: NamedSpec,
        kind: str,
        journal: Journal,
        control: Control,
    ) -> None:
        self._run, self._environment = run, environment
        self._plain, self._kind = plain, kind
        self._journal, self.control = journal, control
        self._seen: set[tuple[str, str]] = set()
        self.results: dict[str, Measured] = {}

    @property
    def done(self) -> int:
        """Runs of settings other than plain decoding."""
        return len(self._seen)

    @property
    def stopped(self) -> bool:
        """Whether the user stopped."""
        return self.control.state == "stopped"

    def measure(
        self, stage: str, settings: Sequence[NamedSpec], prompts: Sequence[Prompt]
    ) -> Iterator[Progress]:
        """Run settings on prompts; `results` then has those whose runs did not fail, by name.

        After a stop, `results` has what could be measured until then.
        """
        every = [self._plain, *settings]
        batch = BatchResults(every, prompts)
        for one in run_batch(
            self._run, every, prompts, self._journal, self._environment, self.control
        ):
            batch.add(one.setting, one.prompt, one.outcome)
            if one.setting:
                self._seen.add((every[one.setting].name, prompts[one.prompt].prompt))
            yield _progress(stage, one)
        self.results = {}
        for index, named in enumerate(every):
            pairs = batch.pairs(index)
            if pairs:
                outcomes = tuple(own for _, own in pairs)
                ratio = median(a.ms / b.ms for a, b in pairs)
                self.results[named.name] = Measured(named, ratio, kept(self._kind, pairs), outcomes)


def _progress(stage: str, one: Finished) -> Progress:
    return Progress(stage, one.done, one.total, one.seconds_left)
