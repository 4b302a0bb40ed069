"""Measuring settings on prompts: runs by turns, kept in a journal, and what they show."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from statistics import fmean, median
from typing import Any

import numpy as np

from engine.advise.kept import Kept, kept
from engine.batch.journal import Journal, run_key
from engine.batch.outcome import Outcome
from engine.batch.prompts import Prompt
from engine.batch.results import Pair
from engine.batch.runner import Run, run_batch
from engine.batch.settings import NamedSpec
from engine.batch.statistics import bootstrap_interval
from engine.config.spec import RunSpec
from engine.core.control import Control


@dataclass(frozen=True)
class Progress:
    """`done` of `total` items of a stage are over.

    The others need about `seconds_left`, None if that is unknown.
    """

    stage: str
    done: int
    total: int
    seconds_left: float | None = None


@dataclass(frozen=True)
class Measured:
    """A setting on some prompts: `pairs` of a run of plain decoding and one of the setting.

    Both runs of a pair were made one after the other, so that their times can be compared. `kept`
    is None if it cannot be judged.
    """

    named: NamedSpec
    pairs: tuple[Pair, ...]
    kept: Kept | None

    @property
    def outcomes(self) -> list[Outcome]:
        """The setting's own runs."""
        return [own for _, own in self.pairs]

    @property
    def speed_ups(self) -> list[float]:
        """Time of plain decoding over the setting's, by prompt."""
        return [plain.ms / own.ms for plain, own in self.pairs]

    @property
    def speed_up(self) -> float:
        """Median of `speed_ups`."""
        return median(self.speed_ups)

    @cached_property
    def speed_up_interval(self) -> tuple[float, float]:
        """95 % bootstrap interval of `speed_up`."""
        return bootstrap_interval(self.speed_ups, statistic=np.median)

    def may_keep(self, keep: float) -> bool:
        """Whether the interval of what the setting keeps reaches `keep`."""
        return self.kept is not None and self.kept.may_keep(keep)

    @property
    def ms(self) -> float:
        """Mean milliseconds of a run."""
        return fmean(own.ms for own in self.outcomes)

    @property
    def recomputed(self) -> float:
        """Mean share of rows recomputed."""
        return fmean(own.recomputed for own in self.outcomes)

    @property
    def gflops(self) -> float:
        """Mean GFLOPs of a run."""
        return fmean(own.gflops for own in self.outcomes)


class Measuring:
    """Runs settings on prompts, each pair of them once, in turn with plain decoding.

    Two names of one spec, such as a preset that the search at random draws, share their runs.
    `plain` is the setting that the others are compared with, `kind` what is kept of it. Runs that
    the journal has are not made again; it keeps each with the run of plain decoding beside it.
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
        self._journal, self._control = journal, control
        self._pairs: dict[tuple[RunSpec, str], Pair] = {}
        self._environments: dict[RunSpec, Mapping[str, Any]] = {}

    @property
    def done(self) -> int:
        """Runs of settings so far, without those of plain decoding."""
        return len(self._pairs)

    @property
    def stopped(self) -> bool:
        """Whether the user stopped."""
        return self._control.state == "stopped"

    def measure(
        self, stage: str, settings: Sequence[NamedSpec], prompts: Sequence[Prompt]
    ) -> Iterator[Progress]:
        """Run settings on prompts, prompt by prompt, until all are done or the user stops."""
        total, done, made, spent = len(settings) * len(prompts), 0, 0, 0.0
        for prompt in prompts:
            new = {one.spec: one for one in settings if not self._resume(one, prompt)}
            missing = list(new.values())
            done += len(settings) - len(missing)
            for seconds in self._take_turns(missing, prompt):
                made, spent = made + 1, spent + seconds
                yield Progress(stage, done + made, total, spent / made * (total - done - made))
            if self.stopped:
                return

    def measured(self, named: NamedSpec, prompts: Sequence[Prompt]) -> Measured | None:
        """The figures of a setting on those of the prompts whose runs did not fail."""
        keys = ((named.spec, one.prompt) for one in prompts)
        pairs = tuple(
            pair
            for pair in (self._pairs.get(key) for key in keys)
            if pair is not None and all(one.reason == "done" for one in pair)
        )
        return Measured(named, pairs, kept(self._kind, pairs)) if pairs else None

    def figures(
        self, settings: Sequence[NamedSpec], prompts: Sequence[Prompt]
    ) -> dict[str, Measured]:
        """`measured` of several settings by name, without those whose runs all failed."""
        found = {one.name: self.measured(one, prompts) for one in settings}
        return {name: one for name, one in found.items() if one is not None}

    def failed(self, prompts: Sequence[Prompt]) -> dict[str, str]:
        """Those of the prompts on which plain decoding failed, with the message."""
        known = {one.prompt for one in prompts}
        return {
            prompt: plain.message
            for (_, prompt), (plain, _) in self._pairs.items()
            if prompt in known and plain.reason != "done"
        }

    def _take_turns(self, settings: Sequence[NamedSpec], prompt: Prompt) -> Iterator[float]:
        """Run plain decoding and settings on a prompt.

        Yields after each run of a setting the seconds since the one before, without waiting.
        """
        if not settings:
            return
        every, plain, seconds = [self._plain, *settings], None, 0.0
        for one in run_batch(
            self._run, every, [prompt], Journal(), self._environment, self._control
        ):
            seconds += one.seconds
            if plain is None:
                plain = one.outcome
                continue
            named = every[one.setting]
            self._pairs[named.spec, prompt.prompt] = plain, one.outcome
            if plain.reason == one.outcome.reason == "done":
                for key, outcome in zip(
                    self._keys(named, prompt), (plain, one.outcome), strict=True
                ):
                    self._journal.put(key, outcome)
            yield seconds
            seconds = 0.0

    def _resume(self, named: NamedSpec, prompt: Prompt) -> bool:
        """Whether a run is known, after a look into the journal."""
        if (named.spec, prompt.prompt) not in self._pairs:
            plain, own = (self._journal.get(key) for key in self._keys(named, prompt))
            if plain is None or own is None:
                return False
            self._pairs[named.spec, prompt.prompt] = plain, own
        return True

    def _keys(self, named: NamedSpec, prompt: Prompt) -> tuple[str, str]:
        """The keys of the run of plain decoding beside a setting's run, and of the latter."""
        spec = replace(named.spec, prompt=prompt.prompt, messages=())
        if named.spec not in self._environments:
            where = {**self._environment(spec), **self._journal.version(spec)}
            self._environments[named.spec] = where
        environment = self._environments[named.spec]
        own = run_key(spec, prompt.answer, environment)
        plain = replace(self._plain.spec, prompt=prompt.prompt, messages=())
        beside = {**environment, **self._journal.version(plain), "beside": own}
        return run_key(plain, prompt.answer, beside), own
