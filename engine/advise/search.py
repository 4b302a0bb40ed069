"""The search of one cache's settings: predicted candidates, measured in rounds.

Successive halving (Jamieson and Talwalkar, arXiv 1502.07943): many candidates run on a few
prompts, and the better half of them on more. Half of the candidates are chosen by a first
prediction, the others after the prediction was fitted to what the first ones kept.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice

from engine.advise.measuring import Measured, Measuring, Progress
from engine.advise.prediction import (
    Prediction,
    fit_sensitivity,
    fit_times,
    fitted,
    rank_correlation,
)
from engine.advise.request import AdviceRequest
from engine.advise.search_space import name_of, published, title_of, without_repeats
from engine.batch.settings import NamedSpec
from engine.config.spec import RunSpec

MOST_PREDICTED = 48
Predict = Callable[[RunSpec], Prediction]


class NoSettingError(ValueError):
    """No setting of a cache could be run."""


@dataclass
class CacheSearch:
    """What the search of a cache has found so far.

    `grid` is the number of its settings, `others` that of published and fitted settings beside
    them; `predictions` by name; `measured` the last figures of
    each setting by name; `references` the names of the published settings, `fitted` those of the
    settings that follow from recorded drifts; `runs` those of the candidates.
    """

    cache: str
    grid: int
    references: tuple[str, ...] = ()
    fitted: tuple[str, ...] = ()
    predictions: dict[str, Prediction] = field(default_factory=dict)
    measured: dict[str, Measured] = field(default_factory=dict)
    # Measured on all prompts of the search, but for those on which plain decoding failed.
    whole: set[str] = field(default_factory=set)
    runs: int = 0
    others: int = 0

    def correlations(self) -> dict[str, float | None]:
        """Rank correlations of predicted and measured `kept` and `time`, over so many settings."""
        names = [n for n in list(self.predictions) if n in self.measured and self.measured[n].kept]
        errors = [-self.predictions[n].error for n in names]
        shares = [kept.share for n in names if (kept := self.measured[n].kept)]
        times = [self.predictions[n].time or 0.0 for n in names]
        return {
            "kept": rank_correlation(errors, shares),
            "time": rank_correlation(times, [1 / self.measured[n].speed_up for n in names]),
            "settings": float(len(names)),
        }


def search_cache(
    request: AdviceRequest,
    found: CacheSearch,
    settings: Sequence[RunSpec],
    derived: Sequence[RunSpec],
    family: str,
    predict: Predict,
    measuring: Measuring,
) -> Iterator[Progress]:
    """Search a cache among `settings` and those `derived` from recorded drifts, into `found`.

    All derived settings are predicted, and at least one of them is run in the first round. Raises
    ValueError naming `answer` if accuracy is asked for and plain decoding has no answer right, and
    NoSettingError if neither a published setting nor a candidate could be run.
    """
    cache, prompts = found.cache, request.search_prompts
    references = [
        NamedSpec(f"{cache}: {one.name}", one.spec)
        for one in published(request.base, cache, family)
    ]
    found.references = tuple(one.name for one in references)
    yield from _measure(found, measuring, references, len(prompts), request)
    _check_answers(request, found)
    known = [one.spec for one in references]
    own = without_repeats([*known, *derived])[len(known) :]
    new = without_repeats([*known, *own, *settings])[len(known) + len(own) :]
    found.others = len(known) + len(own) + len(new) - len(without_repeats(settings))
    drawn = random.Random(request.seed).sample(new, min(len(new), MOST_PREDICTED))
    sample, found.fitted = [*own, *drawn], tuple(_named(one).name for one in own)
    for done, named in enumerate([*references, *map(_named, sample)], 1):
        if measuring.stopped:
            return
        try:
            found.predictions[named.name] = predict(named.spec)
        except ValueError:
            continue
        yield Progress(f"predicting {title_of(cache)}", done, len(references) + len(sample))
    candidates = [one for one in map(_named, sample) if one.name in found.predictions]
    _fit(found)
    fitted_ones = [one for one in candidates if one.name in found.fitted]
    half = promising(fitted_ones, found.predictions, request.keep, 1)
    others = [one for one in candidates if one not in half]
    half += spread(others, found.predictions, request.candidates // 2 - len(half))
    start = measuring.done
    for progress in _rounds(request, found, candidates, half, measuring):
        found.runs = measuring.done - start
        yield progress
    found.runs = measuring.done - start


def _rounds(
    request: AdviceRequest,
    found: CacheSearch,
    candidates: Sequence[NamedSpec],
    half: Sequence[NamedSpec],
    measuring: Measuring,
) -> Iterator[Progress]:
    """Run `half` of the candidates, then others that are promising after it, then the better."""
    first = request.first_prompts
    yield from _measure(found, measuring, half, first, request)
    _fit(found)
    rest = [one for one in candidates if one not in half]
    more = promising(rest, found.predictions, request.keep, request.candidates - len(half))
    yield from _measure(found, measuring, more, first, request)
    if not found.measured and not measuring.stopped:
        raise NoSettingError(f"cache: no setting of {found.cache} could be run on these prompts")
    yield from halve(request, found, [*half, *more], first, measuring)


def halve(
    request: AdviceRequest,
    found: CacheSearch,
    candidates: Sequence[NamedSpec],
    first: int,
    measuring: Measuring,
) -> Iterator[Progress]:
    """Run the better half of the candidates on twice as many prompts, until all prompts are used.

    `candidates` were measured on the `first` prompts.
    """
    count, left = first, list(candidates)
    while count < len(request.search_prompts) and not measuring.stopped:
        count = min(2 * count, len(request.search_prompts))
        left = better(left, found.measured, request.keep, max(-(-len(left) // 2), 2))
        yield from _measure(found, measuring, left, count, request)


def spread(
    candidates: Sequence[NamedSpec], predictions: dict[str, Prediction], count: int
) -> list[NamedSpec]:
    """At most `count` candidates of the predicted front, from the fastest to the best kept."""
    ordered = sorted(
        candidates, key=lambda one: (predictions[one.name].time, predictions[one.name].error)
    )
    front: list[NamedSpec] = []
    for one in ordered:
        if not front or predictions[one.name].error < predictions[front[-1].name].error:
            front.append(one)
    others = [one for one in ordered if one not in front]
    if len(front) <= count:
        return front + others[: count - len(front)]
    places = {round(i * (len(front) - 1) / max(count - 1, 1)) for i in range(count)}
    return [front[place] for place in sorted(places)]


def promising(
    candidates: Sequence[NamedSpec], predictions: dict[str, Prediction], keep: float, count: int
) -> list[NamedSpec]:
    """The `count` fastest of those predicted to keep enough, then those that keep most."""

    def rank(one: NamedSpec) -> tuple[bool, float]:
        own = predictions[one.name]
        enough = (own.kept or 0.0) >= keep
        return not enough, (own.time or 0.0) if enough else own.error

    return list(islice(sorted(candidates, key=rank), count))


def better(
    candidates: Sequence[NamedSpec], measured: dict[str, Measured], keep: float, count: int
) -> list[NamedSpec]:
    """The `count` fastest that may keep enough, by their interval, then those that keep most."""

    def rank(one: NamedSpec) -> tuple[bool, float]:
        own = measured.get(one.name)
        if own is None or own.kept is None:
            return True, 0.0
        possible = own.may_keep(keep)
        return not possible, -own.speed_up if possible else -own.kept.share

    return list(islice(sorted(candidates, key=rank), count))


def search_at_random(
    request: AdviceRequest, found: CacheSearch, settings: Sequence[RunSpec], measuring: Measuring
) -> Iterator[Progress]:
    """The same rounds with candidates drawn at random from `settings`."""
    drawn = random.Random(request.seed + 1).sample(
        list(settings), min(request.candidates, len(settings))
    )
    candidates = [_named(one) for one in drawn]
    first = request.first_prompts
    yield from _measure(found, measuring, candidates, first, request)
    yield from halve(request, found, candidates, first, measuring)
    found.runs = sum(len(one.pairs) for one in found.measured.values())


def _check_answers(request: AdviceRequest, found: CacheSearch) -> None:
    """Raise ValueError naming `answer` if no answer of plain decoding is right."""
    if request.kind != "accuracy":
        return
    right = [bool(plain.right) for one in found.measured.values() for plain, _ in one.pairs]
    if right and not any(right):
        raise ValueError(
            f"answer: plain decoding gives none of the {len(request.search_prompts)} known answers "
            "of the search, so the accuracy that is kept cannot be judged; check the answers, or "
            "ask for tokens or answers to be kept"
        )


def _named(spec: RunSpec) -> NamedSpec:
    return NamedSpec(f"{spec.cache}: {name_of(spec)}", spec)


def _measure(
    found: CacheSearch,
    measuring: Measuring,
    settings: Sequence[NamedSpec],
    count: int,
    request: AdviceRequest,
) -> Iterator[Progress]:
    """Measure settings on the first `count` prompts of the search."""
    if not settings or measuring.stopped:
        return
    prompts = request.search_prompts[:count]
    yield from measuring.measure(f"measuring {title_of(found.cache)}", settings, prompts)
    every = request.search_prompts
    possible = len(every) - len(measuring.failed(every))
    figures = measuring.figures(settings, prompts)
    found.measured |= figures
    found.whole |= {name for name, own in figures.items() if len(own.pairs) >= possible}


def _fit(found: CacheSearch) -> None:
    """Fit the predictions to what was measured, if anything was."""
    both = [
        (found.predictions[name], one)
        for name, one in found.measured.items()
        if name in found.predictions
    ]
    if not both:
        return
    rates = fit_times([(own.work, 1 / one.speed_up) for own, one in both])
    judged = [(own.error, one.kept.share) for own, one in both if one.kept is not None]
    sensitivity = fit_sensitivity(judged)
    found.predictions = {
        name: fitted(one, rates, sensitivity) for name, one in found.predictions.items()
    }
