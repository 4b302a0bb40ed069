"""Branching: a run that goes on from a recorded step of a lane, shown beside that lane."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import gradio as gr

from engine.spec import RunSpec
from engine.trace import Trace
from inspector.handlers import Handlers, buttons, plain_words, visitor
from inspector.protocol import LANES, Lane
from inspector.shelf import Record, Shelf
from inspector.views import messages

PARENT, FORM = "parent", "form"
KEPT = ("model", "prompt", "messages", "chat", "gen_length", "fixed", "device", "record")
GONE = "This run is no longer held; run it again and branch from that."


class Branching:
    """Branches of the races on the handlers' shelf."""

    def __init__(self, handlers: Handlers) -> None:
        self._handlers = handlers

    def branch(self, event: gr.EventData, request: gr.Request, *values: Any) -> Iterator[list[Any]]:
        """Run on from a step; the event says `run`, `lane`, `step`, `edits`, `settings`.

        With `back` in it, show that race again instead. `values` are those of the form.
        """
        back = getattr(event, "back", None)
        try:
            if back is not None:
                yield self._back(back, visitor(request))
                return
            record, lane = self._parent(event)
            spec = self._spec(event, record, lane, values)
            child = offspring(record, lane)
            self._handlers.session.plan(spec)
        except Exception as error:
            yield [messages.notice("failed", plain_words(error)), *buttons("over")]
            return
        yield from self._run(child, spec, visitor(request))

    def _run(self, record: Record, spec: RunSpec, who: str) -> Iterator[list[Any]]:
        handlers = self._handlers
        with handlers.live(who, record) as control:
            handlers.shelf.put(record)
            yield [messages.whole(record, handlers.form.words.title), *buttons("running")]
            parents = parents_of(handlers.shelf, [spec])
            feed = messages.Feed(record, handlers.form.words.title, begun=True)
            yield from handlers.relay(
                lambda: (("b", event) for event in handlers.session.run(spec, control, parents)),
                feed,
                record,
                control,
            )

    def _back(self, run_id: Any, who: str) -> list[Any]:
        record = self._held(run_id)
        self._handlers.desk.show(who, record.run_id)
        return [messages.whole(record, self._handlers.form.words.title), *buttons("over")]

    def _held(self, run_id: Any) -> Record:
        record = self._handlers.shelf.get(run_id)
        if record is None:
            raise ValueError(GONE)
        return record

    def _parent(self, event: gr.EventData) -> tuple[Record, Lane]:
        record, lane = self._held(getattr(event, "run", None)), getattr(event, "lane", None)
        if lane not in LANES or lane not in record.started():
            raise ValueError("lane: choose lane A or B of the run to go on from")
        if record.state in ("running", "paused"):
            raise ValueError("start.trace: the run goes on; wait for its end or stop it first")
        return record, str(lane)

    def _spec(
        self, event: gr.EventData, record: Record, lane: Lane, values: Sequence[Any]
    ) -> RunSpec:
        """The parent's settings, or lane B's of the form on the parent's prompt and length."""
        parent = RunSpec.from_dict(record.started()[lane].meta["spec"]).to_dict()
        chosen = parent
        if getattr(event, "settings", PARENT) == FORM:
            form = self._handlers.form.race(values).b.to_dict()
            chosen = form | {name: parent[name] for name in KEPT}
        step, edits = getattr(event, "step", None), getattr(event, "edits", None)
        start = {"trace": trace_id(record, lane), "step": step, "edits": edits or []}
        return RunSpec.from_dict(chosen | {"record": "off", "start": start})


def trace_id(record: Record, lane: Lane) -> str:
    """The id under which a branch names its parent's trace."""
    return f"{record.run_id}.{lane}"


def parents_of(shelf: Shelf, specs: Iterable[RunSpec]) -> dict[str, Trace]:
    """The traces that the specs go on from, by id, as far as they are held."""
    found = {}
    for spec in specs:
        if spec.start is None:
            continue
        run_id, _, lane = spec.start.trace.rpartition(".")
        record = shelf.get(run_id)
        if record is not None and lane in record.started():
            found[spec.start.trace] = record.started()[lane]
    return found


def offspring(parent: Record, lane: Lane) -> Record:
    """A race whose lane A is the parent's lane as it was run, and whose lane B is to come."""
    child = Record(expected=parent.expected, parent=parent.run_id)
    child.traces["a"] = parent.started()[lane]
    if lane in parent.recorded:
        child.recorded["a"] = parent.recorded[lane]
    return child
