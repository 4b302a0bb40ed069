"""What the page's buttons do: settings in, messages for the views out."""

from __future__ import annotations

import json
import logging
import secrets
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import gradio as gr

from engine.events import Event
from engine.spec import MAX_PROMPT_CHARS, RaceSpec, RunSpec
from inspector import export
from inspector.protocol import Control, Lane, Session
from inspector.settings import Form
from inspector.shelf import Answers, Desk, Record, Shelf
from inspector.throttle import coalesce
from inspector.views import charts, compare, messages, plan, tokens

MAX_HZ = 8.0
RUNS: dict[str, Any] = {"concurrency_limit": 32, "concurrency_id": "runs"}  # more than may wait
MAX_WORDS = 1_000
RESERVED = ("view", "deep_link", "logs", "lesson", "cursor", "look")  # no settings
BUTTONS = ("run", "pause", "step", "resume", "stop")
ENABLED = {
    "over": set(),
    "running": {"pause", "stop"},
    "paused": {"step", "resume", "stop"},
    "stopped": set(),
}
log = logging.getLogger("driftscope")


class Handlers:
    """The page's logic; one object a page, all visitors' runs on its shelf and desk."""

    def __init__(self, session: Session, form: Form) -> None:
        self.session = session
        self.form = form
        self.shelf = Shelf()
        self.desk = Desk()
        self.answers = Answers()
        self._example = ""
        for example in session.examples():
            self.answers.learn(example["prompt"], example.get("answer"))

    def plan(self, request: gr.Request, *values: Any) -> tuple[str, Any]:
        """Say what the settings come to, or what is wrong with them; enable Run accordingly."""
        live = self.desk.control(visitor(request)) is not None
        try:
            race = self.form.race(values)
            document = {"ok": True, "query": race.to_query(), **self._plans(race)}
        except Exception as error:
            document = {"ok": False, "error": plain_words(error)}
        return dump(document), gr.update(interactive=document["ok"] and not live)

    def run(self, request: gr.Request, *values: Any) -> Iterator[list[Any]]:
        """Race both lanes and stream what is new to the page."""
        try:
            race = self.form.race(values)
            self._plans(race)
        except Exception as error:
            yield [messages.notice("failed", plain_words(error)), *buttons("over")]
            return
        record = Record(expected=self.answers.expected(race.a.prompt))
        with self.live(visitor(request), record) as control:
            self.shelf.put(record)
            yield from self._stream(race, record, control)

    @contextmanager
    def live(self, who: str, record: Record) -> Iterator[Control]:
        """Flags for the visitor's live run; at its end it is stopped.

        It is dropped where it is unfinished, or the visitor has left meanwhile.
        """
        control = self.session.control()
        self.desk.begin(who, record.run_id, control)
        try:
            yield control
        finally:
            control.stop()
            here = self.desk.end(who, record.run_id)
            if record.state == "running" or not here:
                self.shelf.drop(record.run_id)

    def _stream(self, race: RaceSpec, record: Record, control: Control) -> Iterator[list[Any]]:
        feed = messages.Feed(record, self.form.words.title)
        yield [feed.message((), "starting"), *buttons("running")]
        yield from self.relay(lambda: self.session.race(race, control), feed, record, control)

    def relay(
        self,
        source: Callable[[], Iterator[tuple[Lane, Event]]],
        feed: messages.Feed,
        record: Record,
        control: Control,
    ) -> Iterator[list[Any]]:
        """Pass a race's events on as they come, then the whole of it; a failure ends it so."""
        shown = "running"
        try:
            with closing(source()) as events:  # type: ignore[type-var]
                for batch in coalesce(events, MAX_HZ):
                    state, before = control.state, shown
                    shown = state
                    updates = buttons(state) if state != before else [gr.skip()] * len(BUTTONS)
                    yield [feed.message(batch, state), *updates]
            record.state, record.message = messages.final_state(record)
        except Exception as error:
            record.state, record.message = "failed", plain_words(error)
        self.shelf.put(record)
        yield [messages.whole(record, self.form.words.title), *buttons("over")]

    def flag(self, name: str) -> Any:
        """A handler that sets one flag of the visitor's live run."""

        def press(request: gr.Request) -> None:
            control = self.desk.control(visitor(request))
            if control is not None:
                getattr(control, name)()

        return press

    def leave(self, request: gr.Request) -> None:
        """The tab is closed: stop what it ran and forget its runs."""
        for run_id in self.desk.leave(visitor(request)):
            self.shelf.drop(run_id)
        log.info("visitor left")

    def replay(self, run_id: Any) -> str:
        """Everything so far of a run, for a page that missed a message."""
        run_id = run_id[0] if isinstance(run_id, list) and run_id else run_id
        record = self.shelf.get(run_id)
        if record is None:
            return messages.notice("failed", "This run is no longer held; run it again.")
        return messages.whole(record, self.form.words.title)

    def dice(self, shots: Any) -> str:
        """A new problem with that many worked examples before it."""
        count = min(max(int(shots), 0), 8) if type(shots) in (int, float) else 0
        problem = self.session.problem(secrets.randbelow(2**31), count)
        self.answers.learn(problem["prompt"], problem.get("answer"))
        return problem["prompt"][:MAX_PROMPT_CHARS]

    def example(self, label: Any) -> Any:
        """The prompt of a named example."""
        found = [row["prompt"] for row in self.session.examples() if row["label"] == label]
        return found[0] if found else gr.skip()

    def restore(self, request: gr.Request) -> list[Any]:
        """Settings from the link, if it has any; else leave the defaults."""
        params = {k: v for k, v in dict(request.query_params).items() if known_key(k)}
        if not params:
            return [gr.skip()] * (1 + len(self.form.widgets))
        try:
            race = RaceSpec.from_query(urlencode(params, errors="replace"))
            return [gr.skip(), *self.form.values(race)]
        except ValueError as error:
            text = f"The link's settings were not taken ({error}). The defaults are shown."
            return [messages.notice("failed", text), *[gr.skip()] * len(self.form.widgets)]

    def current(self, request: gr.Request) -> Record | None:
        """The visitor's last race, or the recorded example."""
        return self.shelf.get(self.desk.last(visitor(request)) or self._example)

    def first_view(self, folder: Path | None) -> str:
        """What the page shows before anything is pressed."""
        try:
            record = export.read_example(folder) if folder else None
        except (ValueError, OSError) as error:
            log.warning("the recorded example cannot be read: %s", error)
            record = None
        if record is None:
            return messages.notice("empty")
        spec = record.traces["a"].meta["spec"]
        record.expected = self.answers.expected(str(spec.get("prompt", "")))
        self.shelf.pin(record)
        self._example = record.run_id
        return messages.whole(record, self.form.words.title)

    def time_chart(self, request: gr.Request) -> Any:
        """The chart of the visitor's last race, or of the example; untimed runs are not in it."""
        record = self.current(request)
        started = record.started() if record else {}
        timed = {lane: trace for lane, trace in started.items() if compare.timed(trace)}
        return charts.time_figure(timed) if timed else None

    def _plans(self, race: RaceSpec) -> dict[str, Any]:
        """Both lanes' plans in words; ValueError names the lane where only one is at fault."""
        rows, plans, faults = [], [], {}
        for lane, spec in (("a", race.a), ("b", race.b)):
            try:
                plans.append(self.session.plan(spec))
                rows.append(self._plan_row(lane, spec, plans[-1]))
            except ValueError as error:
                faults[lane] = str(error)
        if len(set(faults.values())) == 1 and len(faults) == 2:
            raise ValueError(faults["a"])
        if faults:
            lane, fault = next(iter(faults.items()))
            raise ValueError(f"Lane {lane.upper()}, {fault}")
        text, before = tokens.question(race.a.prompt)
        memory = plan.memory(plans)
        return {"lanes": rows, "memory": memory, "question": text, "before": before}

    def _plan_row(self, lane: str, spec: RunSpec, found: Mapping[str, Any]) -> dict[str, str]:
        title = self.form.words.title(spec.to_dict())
        text, room = plan.sentence(spec, found), plan.room(spec, found)
        return {"lane": lane, "title": title, "plan": text, "room": room}


def buttons(state: str) -> list[Any]:
    """Which buttons can be pressed in a state; Run only once its plan says so (see `plan`)."""
    return [gr.update(interactive=name in ENABLED[state]) for name in BUTTONS]


def visitor(request: gr.Request) -> str:
    """The page load that asks; one that does not say which it is shares nothing with another."""
    return request.session_hash or f"unknown:{secrets.token_urlsafe(18)}"


def known_key(key: str) -> bool:
    """Whether a query key is a setting and not one of Gradio's own."""
    return not key.startswith("__") and key not in RESERVED


def plain_words(error: Exception) -> str:
    """What to tell the visitor; what is not a refused value also goes to the log."""
    if isinstance(error, ValueError) and not isinstance(error, UnicodeError | json.JSONDecodeError):
        return str(error)[:MAX_WORDS]
    log.error("unexpected failure", exc_info=error)
    return (
        f"Something failed in the app ({type(error).__name__}). Nothing is lost: "
        "change a setting or press Run again; the details are in the server's log."
    )


def dump(document: Mapping[str, Any]) -> str:
    """A compact JSON document."""
    return json.dumps(document, ensure_ascii=False, separators=(",", ":"))
