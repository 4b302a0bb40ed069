"""Branching: a new run that continues from a step of a finished lane."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import partial
from typing import Any

import gradio as gr

from engine.config.spec import RunSpec
from engine.core.events import Event
from engine.trace.trace import Trace
from inspector.handlers.page_handlers import Handlers, buttons, error_text, visitor_id
from inspector.page_data import foreign, links, messages
from inspector.protocol import LANES, Control, Lane
from inspector.run_store import RaceRecord, RunStore

PARENT, FORM = "parent", "form"
AGAIN = "no longer in memory. Run it again and branch from the new run."
GONE, PARENT_GONE = f"This run is {AGAIN}", f"The run that this branch continues is {AGAIN}"


class Branching:
    """Handlers that branch from the races in the run store."""

    def __init__(self, handlers: Handlers) -> None:
        self._handlers = handlers

    def branch(self, event: gr.EventData, request: gr.Request, values: Any) -> Iterator[list[Any]]:
        """Run a branch and stream its messages, or return to an earlier race.

        Args:
            event: its attributes `run`, `lane`, `step`, `edits` and `settings` define the branch.
                The settings are those of the `parent`, of the `form`, or a query after `?`. With
                an attribute `back`, a run id, that race is shown and nothing is run.
            request: the visitor's request.
            values: a list of the form's values.
        """
        back, who = getattr(event, "back", None), visitor_id(request)
        try:
            if back is not None:
                yield self._back(back, who)
                return
            record, lane = self._parent(event)
            spec = self._spec(event, record, lane, values)
            child = child_record(record, lane, spec)
            self._handlers.session.plan(spec)
        except Exception as error:
            yield self._handlers.refusal(who, self._handlers.form.labelled(error_text(error)))
            return
        updates = partial(self._updates, child, spec, who)
        yield from self._handlers.live_updates(who, child, [spec], updates)

    def _updates(
        self, record: RaceRecord, spec: RunSpec, who: str, control: Control
    ) -> Iterator[list[Any]]:
        handlers = self._handlers
        handlers.store.put(record)
        yield [messages.whole(record, handlers.form.catalog.title), *buttons("running")]
        feed = messages.Feed(record, handlers.form.catalog.title, begun=True)

        def events() -> Iterator[tuple[Lane, Event]]:
            images = handlers.images.complete(who, [spec])
            parents = parents_of(handlers.store, [spec])
            run = handlers.session.run(spec, control, parents, images)
            return (("b", event) for event in run)

        yield from handlers.relay(events, feed, record, control)

    def _back(self, run_id: Any, who: str) -> list[Any]:
        record = self._held(run_id)
        self._handlers.live_runs.show(who, record.run_id)
        return [messages.whole(record, self._handlers.form.catalog.title), *buttons("over")]

    def _held(self, run_id: Any) -> RaceRecord:
        record = self._handlers.store.get(run_id)
        if record is None:
            raise ValueError(GONE)
        return record

    def _parent(self, event: gr.EventData) -> tuple[RaceRecord, Lane]:
        record, lane = self._held(getattr(event, "run", None)), getattr(event, "lane", None)
        if lane not in LANES or lane not in record.started():
            raise ValueError("lane: choose lane A or B of the run to branch from")
        if record.state == "running":
            raise ValueError("The run goes on: wait for its end, or stop it.")
        foreign.check_ours(record.started()[lane])
        return record, str(lane)

    def _spec(self, event: gr.EventData, record: RaceRecord, lane: Lane, values: Any) -> RunSpec:
        """The spec of the branch.

        It has the parent's settings, or others with the parent's prompt and length: those of the
        form's lane B, or those of a query.
        """
        parent = RunSpec.from_dict(record.started()[lane].meta["spec"]).to_dict()
        chosen, form = parent, self._handlers.form
        wanted = getattr(event, "settings", PARENT)
        if wanted == FORM:
            chosen = form.race(values).b.to_dict()
        elif isinstance(wanted, str) and wanted.startswith("?"):
            chosen = RunSpec.from_query(wanted, form.catalog.text_knobs).to_dict()
        chosen |= {name: parent[name] for name in links.KEPT}
        step, edits = getattr(event, "step", None), getattr(event, "edits", None)
        start = {"trace": trace_id(record, lane), "step": step, "edits": edits or []}
        return RunSpec.from_dict(chosen | {"record": "off", "start": start})


def trace_id(record: RaceRecord, lane: Lane) -> str:
    """The id by which a branch refers to its parent's trace."""
    return f"{record.run_id}.{lane}"


def parents_of(store: RunStore, specs: Iterable[RunSpec]) -> dict[str, Trace]:
    """The traces that the specs continue, by trace id; ValueError if one is not in the store."""
    found = {}
    for spec in specs:
        if spec.start is None:
            continue
        run_id, _, lane = spec.start.trace.rpartition(".")
        record = store.get(run_id)
        if record is None or lane not in record.started():
            raise ValueError(PARENT_GONE)
        found[spec.start.trace] = record.started()[lane]
    return found


def child_record(parent: RaceRecord, lane: Lane, spec: RunSpec) -> RaceRecord:
    """A new race with the parent's `lane` as lane A and an empty lane B for the branch `spec`."""
    assert spec.start is not None, "a branch has a start"
    above = RunSpec.from_dict(parent.started()[lane].meta["spec"])
    child = RaceRecord(
        expected=parent.expected, parent=parent.run_id,
        origin=parent.origin or links.settings(parent.started()),
        branches=(*parent.branches, links.branch_text(spec, above, lane)), bundled=parent.bundled,
    )  # fmt: skip
    child.traces["a"] = parent.started()[lane]
    if lane in parent.recorded:
        child.recorded["a"] = parent.recorded[lane]
    return child
