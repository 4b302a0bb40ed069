"""Advice on the settings of cache methods: exact runs, search, and a test on new prompts."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

import numpy as np

from engine.advise.kept import Kept
from engine.advise.measuring import Measured, Measuring, Progress
from engine.advise.narrow_model import NarrowModel, flop_scale, step_flops
from engine.advise.prediction import Prediction, predict_steps
from engine.advise.request import FINALISTS, AdviceRequest
from engine.advise.reuse_error import RunReuse, drift_profile, measure_reuse_error
from engine.advise.search import CacheSearch, NoSettingError, search_at_random, search_cache
from engine.advise.search_space import DEFAULT, fitted, grid, title_of
from engine.batch.journal import Journal
from engine.batch.outcome import FAILED
from engine.batch.prompts import Prompt
from engine.batch.runner import Run
from engine.batch.settings import PLAIN, NamedSpec
from engine.cache.calibration.drift_profile import DriftProfile
from engine.config.narrowing import ALL
from engine.config.spec import RunSpec
from engine.core.control import Control
from engine.core.events import PARTS, RunFinished, RunStarted, StepEvent
from engine.models.base import ModelInfo
from engine.trace.trace import Trace

EXACT_RUNS = 2
RECORDED_STEPS = 32  # steps whose drifts an exact run records, spread evenly
FIRST_TEST = 60  # prompts of the final test that every setting of it gets
ORIGINS = ("published", "searched", "random", "fitted")
Key = TypeVar("Key")


@dataclass(frozen=True)
class ExactRun:
    """What is kept of a recorded exact run: tokens of its prompt, steps, FLOPs by part, reuse.

    Not its trace: every search that goes on holds its exact runs.
    """

    tokens: int
    steps: int
    flops: np.ndarray
    reuse: RunReuse


@dataclass
class CacheAdvice:
    """What is known about a cache: its search, and the settings of the final test by name.

    `drawn` is the search at random, None if there was none. `held_back` are the figures of the
    final test, `chosen` the name of the fastest setting that it accepts, None if there is none.
    `problem` says why no setting of it could be run.
    """

    search: CacheSearch
    drawn: CacheSearch | None = None
    held_back: dict[str, Measured] = field(default_factory=dict)
    accepted: frozenset[str] = frozenset()
    chosen: str | None = None
    problem: str = ""

    def origin(self, name: str) -> str:
        """Where a setting comes from, one of ORIGINS."""
        if name in self.search.references:
            return ORIGINS[0]
        if name in self.search.fitted:
            return ORIGINS[3]
        return ORIGINS[1] if name in self.search.measured else ORIGINS[2]


@dataclass
class Advice:
    """The state of a request: what is known of each cache so far, by name.

    It may be read while a search in another thread adds to it, so `caches` is copied to iterate it.
    `finished` is False until the final test is over. `environment` is machine and versions.
    `failed` are the prompts of the final test on which plain decoding failed, with the messages.
    """

    request: AdviceRequest
    environment: Mapping[str, Any] = field(default_factory=dict)
    caches: dict[str, CacheAdvice] = field(default_factory=dict)
    failed: Mapping[str, str] = field(default_factory=dict)
    finished: bool = False

    @property
    def tested(self) -> int:
        """Number of prompts of the final test on which plain decoding did not fail."""
        return len(self.request.held_back) - len(self.failed)

    @property
    def raced(self) -> Prompt:
        """The prompt of a race: the first of the final test that plain decoding could run."""
        prompts = self.request.held_back
        return next((one for one in prompts if one.prompt not in self.failed), prompts[0])

    def front(self) -> list[tuple[str, str]]:
        """The Pareto front: cache and name of the settings tested on all prompts that none beats.

        See `unbeaten`. Shares of fewer prompts are shares of other prompts, so they do not compare.
        """
        points = {
            (cache, name): (one.speed_up, kept.share)
            for cache, found in list(self.caches.items())
            for name, (one, kept) in self.tested_on_all(found).items()
        }
        return unbeaten(points)

    def tested_on_all(self, found: CacheAdvice) -> dict[str, tuple[Measured, Kept]]:
        """The settings of a cache that were tested on all prompts, and what they keep, by name."""
        return {
            name: (one, one.kept)
            for name, one in list(found.held_back.items())
            if one.kept is not None and one.kept.pairs == self.tested
        }

    def chosen(self) -> tuple[str, str] | None:
        """Cache and name of the fastest accepted setting; None if there is none."""
        accepted = [(c, one.chosen) for c, one in list(self.caches.items()) if one.chosen]
        if not accepted:
            return None
        return max(accepted, key=lambda one: self.caches[one[0]].held_back[one[1]].speed_up)


class Advisor:
    """Works on a request; `advice` may be read at any time.

    Args:
        run: the events of a spec, for example `Session.run` with the same control.
        environment: machine, versions and checkpoint of a spec's run.
        info: the sizes of the model.
        request: what is asked for.
        journal: the outcomes of an earlier, interrupted search.
        control: Stop.
        exact: the exact runs that an earlier part of the search recorded; it gets those that are
            recorded now.
        predicted: the predictions that an earlier part made from these exact runs; likewise.

    Raises ValueError naming `model` if its family is not known, or `cache` if a method does not
    go with the model.
    """

    def __init__(
        self,
        run: Run,
        environment: Callable[[RunSpec], Mapping[str, Any]],
        info: ModelInfo,
        request: AdviceRequest,
        journal: Journal,
        control: Control,
        exact: list[ExactRun] | None = None,
        predicted: dict[RunSpec, Prediction] | None = None,
    ) -> None:
        request.check_model(info)
        self.advice = Advice(request)
        self._exact = [] if exact is None else exact
        self._predicted = {} if predicted is None else predicted
        self._run, self._environment, self._info = run, environment, info
        self._narrow = NarrowModel(info)
        self._plain = NamedSpec(PLAIN, request.plain)
        self._measuring = Measuring(run, environment, self._plain, request.kind, journal, control)

    def events(self) -> Iterator[Progress]:
        """Work to the end, or until Stop.

        Raises ValueError if the exact runs fail, if no setting of the only cache can be run, or if
        plain decoding has no answer right and accuracy has to be kept.
        """
        request, advice = self.advice.request, self.advice
        advice.environment = self._environment(request.plain)
        predict = yield from self._exact_runs()
        if predict is None:
            return
        for cache in request.caches:
            settings = grid(request.base, cache)
            found = advice.caches[cache] = CacheAdvice(CacheSearch(cache, len(settings)))
            try:
                yield from self._search(found, settings, predict)
            except NoSettingError as error:
                if len(request.caches) == 1:
                    raise
                found.problem = str(error)
        for cache, found in advice.caches.items():
            if self._measuring.stopped:
                return
            yield from self._final_test(cache, found)
        advice.finished = not self._measuring.stopped

    def _search(
        self, found: CacheAdvice, settings: list[RunSpec], predict: Callable[[RunSpec], Prediction]
    ) -> Iterator[Progress]:
        """Search a cache among its settings, and at random if that is asked for."""
        request, cache = self.advice.request, found.search.cache
        derived = fitted(request.base, cache, self._profile)
        yield from search_cache(
            request, found.search, settings, derived, self._info.family, predict, self._measuring
        )
        if request.random and not self._measuring.stopped:
            found.drawn = CacheSearch(cache, len(settings))
            yield from search_at_random(request, found.drawn, settings, self._measuring)

    def _exact_runs(self) -> Generator[Progress, None, Callable[[RunSpec], Prediction] | None]:
        """Record exact runs of the first prompts; returns the prediction of a setting.

        Every layer, quantity and position is recorded, whatever the request's settings record.
        Returns None after a stop.
        """
        request = self.advice.request
        every = max(request.plain.steps // RECORDED_STEPS, 1)
        recorded = replace(
            request.plain, record="layers", record_every=every, record_layers=ALL,
            record_quantities=ALL, record_positions=ALL,
        )  # fmt: skip
        prompts = request.search_prompts[:EXACT_RUNS]
        for done, prompt in enumerate(prompts[len(self._exact) :], len(self._exact)):
            yield Progress("recording exact runs", done, len(prompts))
            own = _record(self._run, replace(recorded, prompt=prompt.prompt, messages=()))
            if own is not None:
                self._exact.append(own)
            if own is None or self._measuring.stopped:
                return None
        first = self._exact[0]
        tokens, count = first.tokens, first.steps
        steps = self._narrow.run(request.plain, tokens, count)
        scale, errors = flop_scale(first.flops, steps), measure_reuse_error(self._reuse)

        def predict(spec: RunSpec) -> Prediction:
            if spec not in self._predicted:
                found = predict_steps(self._narrow, scale, errors, spec, tokens, count)
                self._predicted[spec] = found
            return self._predicted[spec]

        return predict

    @property
    def _reuse(self) -> list[RunReuse]:
        return [one.reuse for one in self._exact]

    def _profile(self, quantity: str) -> DriftProfile:
        return drift_profile(self._reuse, quantity)

    def _final_test(self, cache: str, found: CacheAdvice) -> Iterator[Progress]:
        """Measure the best settings of the search, and published ones, on new prompts.

        A setting that keeps too little on the first FIRST_TEST prompts, by its whole interval, is
        not run on the others.
        """
        request, held_back = self.advice.request, self.advice.request.held_back
        left = [_of(found, name).named for name in finalists(found, request.keep)]
        for count in dict.fromkeys((min(FIRST_TEST, len(held_back)), len(held_back))):
            prompts = held_back[:count]
            stage = f"testing {title_of(cache)} on new prompts"
            yield from self._measuring.measure(stage, left, prompts)
            measured = self._measuring.figures(left, prompts)
            found.held_back |= measured
            left = [one.named for one in measured.values() if one.may_keep(request.keep)]
        known, self.advice.failed = self.advice.failed, self._measuring.failed(held_back)
        changed = self.advice.failed.keys() != known.keys()
        for one in list(self.advice.caches.values()) if changed else [found]:
            self._judge(one)

    def _judge(self, found: CacheAdvice) -> None:
        """Accept and choose settings of a cache by the prompts on which plain decoding never fails.

        It runs anew beside every cache, so it may fail beside one of them only.
        """
        advice = self.advice
        if advice.failed:
            prompts = [one for one in advice.request.held_back if one.prompt not in advice.failed]
            tested = [one.named for one in found.held_back.values()]
            found.held_back |= self._measuring.figures(tested, prompts)
        accepted = {
            name: (found.origin(name), one.speed_up)
            for name, (one, kept) in advice.tested_on_all(found).items()
            if kept.accepts(advice.request.keep)
        }
        found.accepted = frozenset(accepted)
        found.chosen = fastest(accepted)


def fastest(accepted: Mapping[str, tuple[str, float]]) -> str | None:
    """The name of the fastest accepted setting, given origin and speed-up of each; None if none.

    Those of the search at random are only for comparison.
    """
    eligible = {name: speed for name, (origin, speed) in accepted.items() if origin != ORIGINS[2]}
    return max(eligible, key=lambda name: eligible[name], default=None)


def unbeaten(points: Mapping[Key, tuple[float, float]]) -> list[Key]:
    """The keys of the settings that no other one beats, given speed-up and kept share of each.

    One setting beats another if it is at least as fast and keeps at least as much.
    """
    return [
        key
        for key, (speed, share) in points.items()
        if not any(
            (s >= speed and k >= share) and (s > speed or k > share) for s, k in points.values()
        )
    ]


def finalists(found: CacheAdvice, keep: float) -> list[str]:
    """Names of the settings of the final test.

    They are the FINALISTS fastest settings of the search that kept enough, and the one that kept
    most; the method's defaults if they could be run, and the fastest published setting that kept
    enough; and the best one of the search at random.
    """
    search, default = found.search, f"{found.search.cache}: {DEFAULT}"
    own = {n: search.measured[n] for n in search.whole if n not in search.references}
    published = {n: search.measured[n] for n in search.references if n in search.whole}
    names = [n for n in search.references if n == default and n in search.measured]
    names += _fastest(published, keep, 1)
    names += [*_fastest(own, keep, FINALISTS), *_most_kept(own)]
    if found.drawn is not None:
        drawn = {n: found.drawn.measured[n] for n in found.drawn.whole}
        names += _fastest(drawn, keep, 1) or _most_kept(drawn)
    return [name for name in dict.fromkeys(names) if _of(found, name).kept is not None]


def _fastest(measured: Mapping[str, Measured], keep: float, count: int) -> list[str]:
    enough = [n for n, one in measured.items() if one.kept and one.kept.share >= keep]
    return sorted(enough, key=lambda name: -measured[name].speed_up)[:count]


def _most_kept(measured: Mapping[str, Measured]) -> list[str]:
    judged = [name for name, one in measured.items() if one.kept]

    def rank(name: str) -> tuple[float, float]:
        own = measured[name]
        return own.kept.share if own.kept else 0.0, own.speed_up

    return [max(judged, key=rank)] if judged else []


def _of(found: CacheAdvice, name: str) -> Measured:
    """The figures of a setting on the prompts of the search."""
    search = found.search
    if name not in search.measured and found.drawn is not None:
        search = found.drawn
    return search.measured[name]


def _record(run: Run, spec: RunSpec) -> ExactRun | None:
    """Record an exact run; None if it was stopped. Raises ValueError if it fails."""
    trace, flops = Trace(), np.zeros(len(PARTS))
    for event in run(spec):
        if isinstance(event, RunStarted | StepEvent | RunFinished):
            trace.append(event)
        if isinstance(event, StepEvent):
            flops += step_flops(event)
        elif isinstance(event, RunFinished) and event.reason in FAILED:
            raise ValueError(f"model: the exact run failed: {event.message}")
    if trace.meta.get("reason") != "done":
        return None
    return ExactRun(trace.prompt_length, trace.steps, flops, RunReuse.of(trace))
