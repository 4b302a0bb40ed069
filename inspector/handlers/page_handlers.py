"""Handlers of the page's buttons: they take form values and return messages for the page."""

from __future__ import annotations

import json
import logging
import math
import secrets
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import gradio as gr
from gradio.utils import get_upload_folder

from engine.config.answers import fitting_length
from engine.config.spec import MAX_LENGTH, MAX_PROMPT_CHARS, MAX_SHOTS, RaceSpec, RunSpec
from engine.core.events import Event, RunFinished, RunStarted
from inspector.files import export
from inspector.form.settings import Form
from inspector.handlers.image_service import ImageService
from inspector.handlers.uploads import UnreadUploads
from inspector.page_data import links, messages, plan, tokens
from inspector.page_data.messages import to_json
from inspector.protocol import LANES, Control, Lane, Session
from inspector.run_store import (
    GONE,
    RUN_SLOTS,
    KnownProblems,
    LiveRuns,
    RaceRecord,
    RunControls,
    RunStore,
    store_bytes,
)
from inspector.server.throttle import coalesce

MAX_HZ = 2.0  # messages of a handler; a page asks for the steps in between, see `Handlers.news`
RUNS: dict[str, Any] = {"concurrency_limit": RUN_SLOTS, "concurrency_id": "runs"}
MAX_ERROR_CHARS = 1_000
BUTTONS = ("run", "pause", "step", "resume", "stop")
ENABLED = {
    "over": set(),
    "running": {"pause", "stop"},
    "paused": {"step", "resume", "stop"},
    "stopped": set(),
    "recording": {"stop"},
}
log = logging.getLogger("driftscope")


class Handlers:
    """The logic behind the page. One object serves all visitors.

    Args:
        session: the engine's session.
        form: the settings form.
    """

    def __init__(self, session: Session, form: Form) -> None:
        self.session = session
        self.form = form
        self.store = RunStore(store_bytes(form.catalog.trace_bytes))
        self.live_runs = LiveRuns()
        self.controls = RunControls(session.control, store_bytes(form.catalog.trace_bytes))
        self.known_problems = KnownProblems()
        self.uploads = UnreadUploads()
        folder = Path(get_upload_folder())
        self.images = ImageService(
            session, form.catalog.image_bytes, error_text, folder, self.uploads
        )
        for example in session.examples():
            self.known_problems.learn(example)

    def plan(self, request: gr.Request, values: Any) -> tuple[str, Any]:
        """Derive the plan of the settings, given as a list of the form's values, or their error.

        Returns the plan as a JSON document, and an update that enables or disables Run.
        """
        try:
            race = self.form.race(values)
            document = {"ok": True, "query": race.to_query(), **self._plans(race)}
        except Exception as error:
            document = {"ok": False, "error": self.form.labelled(error_text(error))}
        live = self.is_live(request)  # after the plan, because a run may end meanwhile
        return to_json(document), gr.update(interactive=document["ok"] and not live)

    def run(self, request: gr.Request, values: Any) -> Iterator[list[Any]]:
        """Run both lanes and stream messages with the new steps, then the finished race."""
        who = visitor_id(request)
        try:
            race = self.form.race(values)
            self._plans(race)
        except Exception as error:
            yield self.refusal(who, self.form.labelled(error_text(error)))
            return
        yield from self.run_race(race, who)

    def run_race(
        self, race: RaceSpec, who: str, expected: str | None = None
    ) -> Iterator[list[Any]]:
        """Run a checked race of a visitor, as `run`; `expected` is its right answer, if known."""
        known = expected or self.known_problems.expected(race.a.prompt)
        record = RaceRecord(expected=known, record_next=True)
        updates = partial(self._stream, race, record, who)
        yield from self.live_updates(who, record, (race.a, race.b), updates)

    @contextmanager
    def live_run(self, who: str, record: RaceRecord, specs: Iterable[RunSpec]) -> Iterator[Control]:
        """Context manager that registers a visitor's live run of specs and yields its control.

        On exit the run is stopped. Its record is dropped if it is unfinished or if the visitor
        has left. Raises ValueError, before the visitor's earlier run is stopped, if it is refused.
        """
        plans = [self.session.plan(one) for one in specs if one.record != "off"]
        most = self.form.catalog.trace_bytes  # of a model whose sizes are unknown until it is here
        recorded = sum(plan["recording_bytes"] or most for plan in plans)
        control = self.controls.new(recorded, self.live_runs.control(who))
        self.live_runs.begin(who, record.run_id, control)
        try:
            yield control
        finally:
            control.stop()
            here = self.live_runs.end(who, record.run_id, control)
            if record.state == "running" or not here:
                self.store.drop(record.run_id)

    def live_updates(
        self,
        who: str,
        record: RaceRecord,
        specs: Iterable[RunSpec],
        updates: Callable[[Control], Iterator[list[Any]]],
        asked: bool = True,
    ) -> Iterator[list[Any]]:
        """The updates of a live run until the visitor starts another run, which stops this one.

        Later updates would replace the lanes and buttons of the new run. A run that is refused is
        a notice, or nothing if nobody `asked` for it.
        """
        with ExitStack() as stack:
            try:
                control = stack.enter_context(self.live_run(who, record, specs))
            except Exception as error:
                text = self.form.labelled(error_text(error))
                yield self.refusal(who, text) if asked else [gr.skip()] * (1 + len(BUTTONS))
                return
            for update in stack.enter_context(closing(updates(control))):  # type: ignore[type-var]
                if self.live_runs.control(who) is control:
                    yield update

    def _stream(
        self, race: RaceSpec, record: RaceRecord, who: str, control: Control
    ) -> Iterator[list[Any]]:
        self.store.put(record)
        feed = messages.Feed(record, self.form.catalog.title)
        yield [feed.message((), "starting"), *buttons("running")]

        def events() -> Iterator[tuple[Lane, Event]]:
            images = self.images.complete(who, [race.a, race.b])
            return self.session.race(race, control, images=images)

        yield from self.relay(events, feed, record, control)

    def relay(
        self,
        source: Callable[[], Iterator[tuple[Lane, Event]]],
        feed: messages.Feed,
        record: RaceRecord,
        control: Control,
    ) -> Iterator[list[Any]]:
        """Stream the events of `source` as messages, then one message with the whole race.

        The first message sets the buttons again: the answer of a plan that was made before the
        run began may arrive late and enable Run.

        An exception in `source` ends the race with the state `failed`.
        """
        shown = None
        try:
            with closing(source()) as events:  # type: ignore[type-var]
                for batch in coalesce(feed.kept(events), MAX_HZ, at_once=begins_or_ends):
                    state, before = control.state, shown
                    shown = state
                    updates = buttons(state) if state != before else [gr.skip()] * len(BUTTONS)
                    yield [feed.message(batch, state), *updates]
            record.state, record.message = messages.final_state(record)
        except Exception as error:
            record.state, record.message = "failed", error_text(error)
        self.store.put(record)
        yield [messages.whole(record, self.form.catalog.title), *buttons("over")]

    def flag(self, name: str) -> Any:
        """A button handler that calls the method `name` of the visitor's live control."""

        def press(request: gr.Request) -> None:
            control = self.live_runs.control(visitor_id(request))
            if control is not None:
                getattr(control, name)()

        return press

    def leave(self, request: gr.Request) -> None:
        """Handle a closed tab: stop its live run and drop its records."""
        who = visitor_id(request)
        for run_id in self.live_runs.leave(who):
            self.store.drop(run_id)
        self.images.leave(who)
        log.info("visitor left")

    def replay(self, run_id: Any) -> str:
        """The whole race so far, for a page that missed a message."""
        run_id = run_id[0] if isinstance(run_id, list) and run_id else run_id
        record = self.store.get(run_id)
        if record is None:
            return messages.notice("failed", GONE)
        return messages.whole(record, self.form.catalog.title)

    def news(self, asked: Any) -> str:
        """The new steps of a run, for a page that draws them between the messages of `run`.

        `asked` comes from the page: the run's id and, for each lane, the number of steps that it
        has, or -1 for a lane that has not started there.
        """
        run_id, *steps = asked if isinstance(asked, list) and asked else [None]
        record = self.store.get(run_id) if isinstance(run_id, str) else None
        if record is None or len(steps) != len(LANES) or {type(n) for n in steps} != {int}:
            return messages.notice("empty")
        return messages.news(record, {k: n for k, n in zip(LANES, steps, strict=True) if n >= 0})

    def new_problem(self, shots: Any, family: Any, block_length: Any) -> list[Any]:
        """A new random problem of a family, after `shots` worked examples (0 to 8).

        Returns values of the prompt, the answer length and the steps of both lanes: the length of
        the problem's own text, rounded up to a block.
        """
        named = family if family in [name for _, name in self.session.families()] else None
        count = _whole(shots, 0, MAX_SHOTS)
        problem = self.session.problem(secrets.randbelow(2**31), count, named)
        self.known_problems.learn(problem)
        return _fitted(problem, block_length)

    def offer_families(self, model: Any, chosen: Any, hidden: bool = False) -> Any:
        """An update of the choice of a family, after the model was changed.

        `hidden`: a single family is not offered.
        """
        rows = self.session.families(model if isinstance(model, str) else "")
        names = [name for _, name in rows]
        value = chosen if chosen in names else names[0]
        return gr.update(choices=rows, value=value, visible=len(rows) > 1 or not hidden)

    def take_images(self, request: gr.Request, paths: Any, names: Any) -> tuple[Any, Any, Any]:
        """Read uploaded image files: the form's value, what is shown, and an empty upload."""
        return *self.images.take(paths, visitor_id(request), names), None

    def example_image(self, request: gr.Request) -> str:
        """Use the example image; returns the form's value."""
        return self.images.example(visitor_id(request))

    def show_images(self, request: gr.Request, model: Any, names: Any) -> list[Any]:
        """Updates of the upload, of what is shown and of the key that removes it.

        The upload is offered for a model that takes images.
        """
        offered = isinstance(model, str) and self.session.takes_images(model)
        shown = self.images.shown(visitor_id(request), names, offered)
        return [gr.update(visible=offered), shown, gr.update(visible=bool(shown))]

    def example(self, label: Any, block_length: Any) -> list[Any]:
        """A named example, as in `new_problem`."""
        for row in self.session.examples():
            if row["label"] == label:
                return _fitted(row, block_length)
        return [gr.skip()] * 4

    def restore(self, request: gr.Request) -> list[Any]:
        """A notice, if any, and the values of the link's query, if any, for `Form.values_given`."""
        params = {k: v for k, v in dict(request.query_params).items() if links.is_setting(k)}
        if not params:
            return [gr.skip(), None]
        if not any(key.rpartition(".")[2] in ("prompt", "messages") for key in params):
            params["prompt"] = self.form.catalog.default.a.prompt
        try:
            race = RaceSpec.from_query(
                urlencode(params, errors="replace"), self.form.catalog.text_knobs
            )
            return [gr.skip(), self.form.given(self.form.values_by_key(race))]
        except ValueError as error:
            said = self.form.labelled(self.form.above_limit(params) or error_text(error))
            text = f"The settings of the link are invalid ({said}). The defaults are shown."
            return [messages.notice("invalid_link", text), None]

    def is_live(self, request: gr.Request) -> bool:
        """Whether a run of the visitor goes on."""
        return self._goes_on(visitor_id(request))

    def _goes_on(self, who: str) -> bool:
        return self.live_runs.control(who) is not None

    def refusal(self, who: str, text: str) -> list[Any]:
        """A notice of what was refused, and the buttons; those of a run that goes on stay."""
        updates = [gr.skip()] * len(BUTTONS) if self._goes_on(who) else buttons("over")
        return [messages.notice("failed", text), *updates]

    def current(self, request: gr.Request) -> RaceRecord | None:
        """The visitor's last race, or None."""
        return self.store.get(self.live_runs.last(visitor_id(request)))

    def shown(self, run_id: Any) -> RaceRecord:
        """The race that the page shows, by its id from the page.

        Raises ValueError if there is none, or if it is no longer in memory.
        """
        if not run_id:
            raise ValueError("There is no race yet: press Run first.")
        record = self.store.get(run_id)
        if record is None or not record.started():
            raise ValueError(GONE)
        return record

    def first_view(self, folder: Path | None) -> str:
        """The message that the page shows at first: the recorded example of `folder`, if any."""
        try:
            record = export.read_example(folder) if folder else None
        except (ValueError, OSError) as error:
            log.warning("the recorded example cannot be read: %s", error)
            record = None
        if record is None:
            return messages.notice("empty")
        self.known_problems.fill_in(record)
        self.store.pin(record)
        return messages.whole(record, self.form.catalog.title)

    def _plans(self, race: RaceSpec) -> dict[str, Any]:
        """The plans of both lanes in words. Raises ValueError as `plan.race_plans`."""
        plans = list(plan.race_plans(self.session, race).values())
        specs = (race.a, race.b)
        rows = [self._plan_row(*one) for one in zip(LANES, specs, plans, strict=True)]
        text, before = tokens.question(race.a.prompt)
        known = self.known_problems.get(race.a.prompt)
        if known:
            rows[0]["context"] += plan.worked_answer(known.answer_tokens, race.a)
        memory, ends = plan.memory(plans, plan.share_model(*specs)), plan.end_of_text(plans)
        return {
            "lanes": rows, "memory": memory, "ends": ends, "question": text, "before": before,
            "estimates": self.form.catalog.estimates,
        }  # fmt: skip

    def _plan_row(self, lane: str, spec: RunSpec, found: Mapping[str, Any]) -> dict[str, str]:
        title = self.form.catalog.title(spec.to_dict())
        text, context = plan.sentence(spec, found), plan.context_use(spec, found)
        return {"lane": lane, "title": title, "plan": text, "context": context}


def _whole(number: Any, least: int, most: int) -> int:
    """A number from the page as an integer within limits; `least` if it is none."""
    known = type(number) is int or (type(number) is float and math.isfinite(number))
    return int(min(max(number, least), most)) if known else least


def _fitted(problem: Mapping[str, Any], block_length: Any) -> list[Any]:
    """Values of the prompt, the answer length and the steps of both lanes for a problem."""
    block = _whole(block_length, 1, MAX_LENGTH)
    length = fitting_length(problem["answer_tokens"], block)
    return [problem["prompt"][:MAX_PROMPT_CHARS], length, length, length]


def buttons(state: str) -> list[Any]:
    """Updates that enable the buttons of a state. `Handlers.plan` enables Run."""
    return [gr.update(interactive=name in ENABLED[state]) for name in BUTTONS]


def visitor_id(request: gr.Request) -> str:
    """An id of the page load that sent the request; a new random id if it sent none."""
    return request.session_hash or f"unknown:{secrets.token_urlsafe(18)}"


def begins_or_ends(tagged: tuple[Lane, Event]) -> bool:
    """Whether an event begins or ends its lane; such an event is sent to the page at once."""
    return isinstance(tagged[1], RunStarted | RunFinished)


def error_text(error: Exception) -> str:
    """The text that the visitor sees for an error.

    A ValueError shows its own message. Any other error is logged and shown as unexpected.
    """
    if isinstance(error, ValueError) and not isinstance(error, UnicodeError | json.JSONDecodeError):
        return str(error)[:MAX_ERROR_CHARS]
    log.error("unexpected failure", exc_info=error)
    return (
        f"Unexpected error in the app ({type(error).__name__}). Change a setting or press Run "
        "again. The details are in the server's log."
    )
