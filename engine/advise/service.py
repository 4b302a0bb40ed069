"""Searches for a page or an API: bounded, held in memory, run in parts that continue each other."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Protocol

from engine.advise.advisor import Advice, Advisor, ExactRun
from engine.advise.kept import KINDS
from engine.advise.measuring import Progress
from engine.advise.prediction import Prediction
from engine.advise.report import advice_document, race_of
from engine.advise.request import LEAST_PROMPTS, MOST_CANDIDATES, AdviceRequest
from engine.advise.search_space import ALL, named_caches, searchable
from engine.batch.journal import Journal
from engine.batch.outcome import FAILED
from engine.batch.prompts import MAX_PROMPTS, Prompt, prompts_of
from engine.batch.settings import check_bare
from engine.batch.tasks import Task, TaskStore
from engine.config.spec import RaceSpec, RunSpec
from engine.core.control import Control
from engine.core.events import Event, RunFinished
from engine.models.base import ModelInfo

KEPT_SEARCHES = 64
EXPECTED = {float: "a number", int: "a whole number", bool: "true or false"}


class Runs(Protocol):
    """The part of a session that searches use."""

    def run(self, spec: RunSpec, control: Any) -> Iterator[Event]:
        """The events of one run."""

    def plan(self, spec: RunSpec) -> dict[str, Any]:
        """The plan of a spec; ValueError naming the field that makes it impossible."""

    def environment(self, spec: RunSpec, control: Control | None = None) -> dict[str, Any]:
        """Machine, versions and checkpoint of a run; loads its model, if not stopped before."""

    def model_info(self, name: str) -> ModelInfo:
        """The sizes of a model; ValueError naming `model` if they are not known."""


@dataclass(frozen=True)
class SearchLimits:
    """Bounds of a search.

    `seconds` is the time that a search may compute until somebody continues it; None: any.
    """

    prompts: int = MAX_PROMPTS
    methods: int = 16
    candidates: int = MOST_CANDIDATES
    seconds: float | None = None

    def check(self, request: AdviceRequest) -> None:
        """Raise ValueError naming the field of a request and the limit that it exceeds."""
        for name, given, most in (
            ("prompts", len(request.prompts), self.prompts),
            ("cache", len(request.caches), self.methods),
            ("candidates", request.candidates, self.candidates),
        ):
            if given > most:
                raise ValueError(
                    f"{name}: {given} are more than the {most} of a search here; take fewer, or "
                    "use python -m engine advise on a machine of your own"
                )


PUBLIC = SearchLimits(prompts=40, methods=1, candidates=8, seconds=120.0)


class Search(Task):
    """A search for settings: what is known so far, and how to go on.

    An estimate times plain decoding. Runs that are over are never made again.
    """

    kind: ClassVar[str] = "search"

    def __init__(self, session: Runs, request: AdviceRequest, seconds: float | None = None) -> None:
        super().__init__(seconds)
        self.request = request
        self._session, self._journal = session, Journal()
        self._exact: list[ExactRun] = []  # these two until the search is done
        self._predicted: dict[RunSpec, Prediction] = {}
        self._advice = Advice(request)
        self._progress = Progress("", 0, 0)
        self._most_runs = request.most_runs(session.model_info(request.base.model).family)

    @property
    def left(self) -> bool:
        """Whether the search is not over."""
        return self.state != "done"

    def run(self, control: Control) -> Iterator[Progress]:
        """Search until the final test is over, Stop, or the end of the time.

        Raises ValueError if the search is running, or as `Advisor.events`.
        """
        yield from self._part(control, lambda: self._search(control))

    def estimate(self, control: Control) -> Iterator[Progress]:
        """Time plain decoding of the first prompt, and say how long the search takes at most."""
        yield from self._part(control, lambda: self._time(control))

    def _search(self, control: Control) -> Iterator[Progress]:
        advisor = Advisor(
            lambda spec: self._timed(self._session.run(spec, control)),
            lambda spec: self._session.environment(spec, control),
            self._session.model_info(self.request.base.model),
            self.request, self._journal, control, self._exact, self._predicted,
        )  # fmt: skip
        for one in advisor.events():
            self._progress = one
            if _measured(advisor.advice) >= _measured(self._advice):
                self._advice = advisor.advice
            if self._over:  # between runs, or one that takes longer would never be over
                control.stop()
            yield one
        if advisor.advice.finished or not self._advice.caches:
            self._advice = advisor.advice
        if advisor.advice.finished:
            self.state = "done"
            self._exact.clear()
            self._predicted.clear()
        elif self._over:
            self._stop_at_limit()

    def _time(self, control: Control) -> Iterator[Progress]:
        first = self.request.prompts[0].prompt
        yield Progress("timing plain decoding", 0, 1)
        spec = replace(self.request.plain, prompt=first)
        for event in self._timed(self._session.run(spec, control)):
            if isinstance(event, RunFinished) and event.reason in FAILED:
                raise ValueError(f"model: plain decoding failed: {event.message}")
        if control.state == "stopped":
            return
        # Plain decoding runs up to twice on every prompt for each cache, and in the exact runs.
        plain = 2 * len(self.request.prompts) * (len(self.request.caches) + 1)
        runs = self._most_runs
        longest = (runs + plain) * self._used
        self.state = "estimated"
        self.message = (
            f"A run of plain decoding takes {in_words(self._used)}. The search makes at most "
            f"{runs} runs of settings and times plain decoding beside them: about "
            f"{in_words(longest)} if no setting is faster than plain decoding"
        )
        yield Progress("timing plain decoding", 1, 1)

    def progress(self) -> dict[str, Any]:
        """`search` (the id), `state`, `message`, `stage`, `done` of `total`, `seconds_left`."""
        one = self._progress
        return {
            "search": self.id, "state": self.state, "message": self.message, "stage": one.stage,
            "done": one.done, "total": one.total, "seconds_left": one.seconds_left,
            "runs": len(self._journal) // 2,
        }  # fmt: skip

    def figures(self) -> dict[str, Any]:
        """`progress`, `most_runs`, and `advice` (`engine.advise.report.advice_document`)."""
        more = {"most_runs": self._most_runs, "advice": advice_document(self._advice)}
        return self.progress() | more

    def race(self, name: Any) -> RaceSpec:
        """The race of a measured setting against plain decoding, on a prompt of the final test.

        Raises ValueError if no measured setting has this name, which may be any untrusted value.
        """
        for found in list(self._advice.caches.values()):
            for measured in (found.held_back, found.search.measured):
                if isinstance(name, str) and name in measured:
                    spec = measured[name].named.spec
                    return race_of(self.request.plain, spec, self._advice.raced.prompt)
        raise ValueError("search: it has measured no setting of this name")

    @property
    def answer(self) -> str | None:
        """The right answer to the prompt of `race`, None if it is not known."""
        return self._advice.raced.answer


class SearchService:
    """Searches by id, with the limits of a page; see `TaskStore` for which of them are dropped.

    `session` runs the specs; `public` applies `PUBLIC`.
    """

    def __init__(
        self, session: Runs, public: bool = False, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.limits = PUBLIC if public else SearchLimits()
        self._session = session
        self._held = TaskStore(Search.kind, _too_many, clock)

    def describe(self) -> dict[str, Any]:
        """The limits, `least_prompts`, the `caches` to choose from and the `kinds` of `of`."""
        known = ("prompts", "methods", "candidates", "seconds")
        return {name: getattr(self.limits, name) for name in known} | {
            "least_prompts": LEAST_PROMPTS, "caches": searchable(), "kinds": list(KINDS),
        }  # fmt: skip

    def open(self, source: Mapping[str, Any], base: RunSpec, cache: Any, **asked: Any) -> Search:
        """A new search, checked but not run.

        Args:
            source: the prompts (`engine.batch.prompts.prompts_of`).
            base: everything that is not searched; its cache is left out.
            cache: a method, several with commas, or `all`.
            asked: `keep`, `of` (the default is `accuracy` if all answers are known, else
                `answers`), `candidates`, `random` and `seed` of an `AdviceRequest`.

        Raises ValueError naming the field.
        """
        if not isinstance(cache, str) or not cache:
            raise ValueError(f"cache: choose from {', '.join((*searchable(), ALL))}")
        check_bare(base, "spec", "a search")
        info = self._session.model_info(base.model)
        caches = named_caches(cache, info)
        prompts = prompts_of(source)
        known = all(one.answer is not None for one in prompts)
        request = AdviceRequest(
            replace(base, prompt="", record="off"), tuple(caches), tuple(prompts),
            kind=_kind(asked.get("of"), known), **_numbers(asked),
        )  # fmt: skip
        self.limits.check(request)
        request.check_model(info)
        check_prompts(self._session, request.plain, prompts)
        return self._held.add(Search(self._session, request, self.limits.seconds))

    def get(self, name: Any) -> Search:
        """The search of an id, which may be any untrusted value. ValueError if it is gone."""
        return self._held.get(name)


def check_prompts(session: Runs, plain: RunSpec, prompts: Sequence[Prompt]) -> None:
    """Refuse prompts that plain decoding cannot run; ValueError naming the prompt's number."""
    for number, one in enumerate(prompts, 1):
        try:
            session.plan(replace(plain, prompt=one.prompt))
        except ValueError as error:
            raise ValueError(f"prompts: number {number}: {error}") from None


def in_words(seconds: float) -> str:
    """A time in seconds, from 60 on in minutes."""
    return f"{seconds:.2g} s" if seconds < 60 else f"{seconds / 60:.1f} min"


def _too_many(searches: Collection[Search]) -> bool:
    """Whether some of the searches must be dropped."""
    return len(searches) > KEPT_SEARCHES


def _kind(of: Any, known: bool) -> str:
    if of in (None, ""):
        return KINDS[2] if known else KINDS[1]
    if not isinstance(of, str):
        raise ValueError(f"of: choose from {', '.join(KINDS)}")
    return of


def _numbers(asked: Mapping[str, Any]) -> dict[str, Any]:
    """The checked `keep`, `candidates`, `random` and `seed` of a request."""
    kinds: dict[str, tuple[type, ...]] = {
        "keep": (int, float), "candidates": (int,), "random": (bool,), "seed": (int,),
    }  # fmt: skip
    if unknown := sorted(set(asked) - {*kinds, "of"}):
        raise ValueError(f"{unknown[0][:40]}: unknown; use of, {', '.join(kinds)}")
    found = {}
    for name, types in kinds.items():
        value = asked.get(name)
        if value is None:
            continue
        if isinstance(value, float) and value.is_integer() and types == (int,):
            value = int(value)
        if type(value) not in types:
            expected = EXPECTED[types[-1]]
            raise ValueError(f"{name}: expected {expected}, not {str(value)[:40]!r}")
        found[name] = value
    return found


def _measured(advice: Advice) -> int:
    """Settings and pairs of runs that an advice has figures of."""
    return sum(
        len(one.pairs)
        for found in advice.caches.values()
        for measured in (found.search.measured, found.held_back)
        for one in measured.values()
    )
