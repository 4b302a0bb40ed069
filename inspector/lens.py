"""Lens: what the inspector asks of the server, views of a run and a recorded run of a spec."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from typing import Any

import gradio as gr

from engine.events import Event, StepEvent, Waiting
from engine.spec import RaceSpec, RunSpec
from engine.trace import Trace
from inspector.branching import parents_of
from inspector.handlers import BUTTONS, MAX_HZ, Handlers, buttons, dump, plain_words, visitor
from inspector.protocol import Control
from inspector.shelf import Record
from inspector.throttle import coalesce
from inspector.views import messages, registry

LEVELS = ("layers", "probe")


class Lens:
    """Views of the races on the handlers' shelf, and recordings of them."""

    def __init__(self, handlers: Handlers) -> None:
        self._handlers = handlers

    def view(self, asked: Any) -> str:
        """The data of one view: `asked` is [run id, lane, name]."""
        if not (isinstance(asked, list) and len(asked) == 3 and all(type(a) is str for a in asked)):
            return dump({"missing": "The view was asked for in an unknown form."})
        run_id, lane, name = asked
        record = self._handlers.shelf.get(run_id)
        timed = name in registry.TIMED
        trace = record.seen(lane, timed) if record else None
        if trace is None or name not in registry.VIEWS:
            return dump({"missing": "This run is no longer held; run it again."})
        assert record is not None
        with record.lock:
            return dump(registry.draw(trace, name))

    def record(self, event: gr.EventData, request: gr.Request) -> Iterator[list[Any]]:
        """Run the visitor's last race once more with the recorder on; its times are not kept."""
        handlers, who = self._handlers, visitor(request)
        record = handlers.current(request)
        level = getattr(event, "level", None)
        if record is None or not record.started() or level not in LEVELS:
            yield [
                messages.notice("failed", "Nothing to record: press Run first."),
                *buttons("over"),
            ]
            return
        before = record.state
        if before == "example":
            record = record.copy()
            handlers.shelf.put(record)
            yield [messages.whole(record, handlers.form.words.title), *buttons("running")]
        with handlers.live(who, record) as control:
            try:
                yield [progress(record, "recording"), *buttons("running")]
                yield from self._stream(record, str(level), control)
            except Exception as error:
                yield [progress(record, before, plain_words(error)), *buttons("over")]

    def _stream(self, record: Record, level: str, control: Control) -> Iterator[list[Any]]:
        specs = {
            lane: replace(RunSpec.from_dict(trace.meta["spec"]), record=level)
            for lane, trace in record.started().items()
        }
        traces, before, steps = {lane: Trace() for lane in specs}, record.state, 0
        idle = [gr.skip()] * len(BUTTONS)
        with closing(self._events(specs, control)) as events:  # type: ignore[type-var]
            for batch in coalesce(events, MAX_HZ):
                for lane, event in batch:
                    traces[lane].append(event)
                    steps += isinstance(event, StepEvent)
                said = f"{steps} steps recorded"
                yield [progress(record, "recording", said, batch[-1][1]), *idle]
        said = fault(record, traces)
        if not said:
            record.recorded = traces
            self._handlers.shelf.put(record)
        yield [progress(record, before, said), *buttons("over")]

    def _events(self, specs: dict[str, RunSpec], control: Control) -> Iterator[Any]:
        session = self._handlers.session
        parents = parents_of(self._handlers.shelf, specs.values())
        if len(specs) == 2:
            return session.race(RaceSpec(**specs), control, parents)
        lane, spec = next(iter(specs.items()))
        return ((lane, event) for event in session.run(spec, control, parents))


def fault(record: Record, traces: dict[str, Trace]) -> str:
    """Why a recording is not taken; empty where it shows the run that was timed."""
    reasons = {trace.meta["reason"] for trace in traces.values()}
    if reasons != {"done"}:
        messages_ = [str(trace.meta.get("message") or "") for trace in traces.values()]
        return next(filter(None, messages_), "The recording was stopped; nothing of it is kept.")
    for lane, trace in record.started().items():
        timed = trace.canvas_at(trace.steps)
        if (
            trace.meta["reason"] == "done"
            and (traces[lane].canvas_at(traces[lane].steps) != timed).any()
        ):
            return (
                f"Lane {lane.upper()}: the recorded run gave other tokens than the timed one, "
                "so it is not shown as its record. Run the race anew."
            )
    return ""


def progress(record: Record, state: str, message: str = "", event: Event | None = None) -> str:
    """A message that changes nothing of the lanes; `recorded` counts the recordings held.

    With how far the model is, where `event` says that it is waited for.
    """
    wait = {"wait": messages.wait(event)} if isinstance(event, Waiting) else {}
    return dump(
        {
            "run": record.run_id, "state": state, "message": message, "lanes": {},
            "recorded": record.version,
        }
        | wait
    )  # fmt: skip
