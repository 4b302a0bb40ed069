"""View service: the data of the inspector's views, and runs with the recorder on."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from functools import partial
from typing import Any

import gradio as gr
import numpy as np

from engine.config.spec import MAX_PROBES, RaceSpec, RunSpec
from engine.config.validation import checked_probes
from engine.core.events import Event, StepEvent
from engine.trace.trace import Trace
from inspector.handlers.branching import parents_of
from inspector.handlers.page_handlers import (
    BUTTONS,
    MAX_HZ,
    Handlers,
    buttons,
    error_text,
    visitor_id,
)
from inspector.page_data import compare, foreign, messages
from inspector.page_data.messages import to_json
from inspector.page_data.plan import race_plans
from inspector.protocol import LANES, Control
from inspector.run_store import GONE, NO_RUN, RaceRecord
from inspector.server.throttle import coalesce
from inspector.views import registry

LEVELS = ("layers", "probe")
SHORT_SECONDS = 10.0  # a race is recorded by itself if that is predicted to take less
RECORDING_FACTOR = 1.5  # time of a run that records drifts, relative to one that does not
MAX_PROBED_STEP = 1_000_000  # a branch of a branch counts the steps of all


class ViewService:
    """Views and recordings of the races in the run store."""

    def __init__(self, handlers: Handlers) -> None:
        self._handlers = handlers

    def view(self, asked: Any) -> str:
        """The data of one view as JSON.

        `asked` is the untrusted request of a client: [run id, lane, view name]. Without data the
        document is `{"missing": reason}`.
        """
        texts = isinstance(asked, list) and all(type(one) is str for one in asked)
        if not texts or len(asked) != 3 or asked[1] not in LANES or asked[2] not in registry.VIEWS:
            return to_json({"missing": "Invalid request: expected run id, lane and view."})
        run_id, lane, name = asked
        record = self._handlers.store.get(run_id)
        if record is None:
            return to_json({"missing": GONE})
        with record.lock:
            found = record.trace_for_views(lane, name in registry.TIMED)
            trace = None if found is None else found.snapshot()
        if trace is None:
            return to_json({"missing": NO_RUN})
        return to_json(registry.draw(trace, name, self._handlers.form.catalog.methods["cache"]))

    def trace(self, run_id: Any, lane: Any) -> Trace:
        """The trace that the views of a lane draw, which later steps do not change.

        Raises ValueError naming `lane`, or `run` if it is not in memory or goes on.
        """
        if lane not in LANES:
            raise ValueError(f"lane: choose from {', '.join(LANES)}")
        record = self._handlers.store.get(run_id)
        if record is None:
            raise ValueError("run: this run is no longer in memory; run it again")
        with record.lock:
            if record.state == "running":
                raise ValueError("run: it has not ended; ask again when it has")
            found = record.trace_for_views(lane)
            if found is None:
                raise ValueError("lane: it has no run; choose the other one")
            return found.snapshot()

    def document(self, asked: Any) -> str:
        """The data of a view for the page, which reads all but registry.TIMED in slices."""
        name = asked[-1] if isinstance(asked, list) and asked else None
        if type(name) is not str or name not in registry.TIMED:
            return to_json({"missing": "This view is sent in slices: GET /driftscope/slice."})
        return self.view(asked)

    def record(self, event: gr.EventData, request: gr.Request) -> Iterator[list[Any]]:
        """Run a race again with the recorder on, and stream its progress.

        The times of this run are not used. `event.run` is the id of the race and `event.level` the
        recording level. `event.probe_at` has the steps that level `probe` compares, or is empty for
        evenly spread ones. They are counted from 0, those of a branch with the steps before it.
        """
        handlers, who = self._handlers, visitor_id(request)
        level = getattr(event, "level", None)
        try:
            record = handlers.shown(getattr(event, "run", None))
            if level not in LEVELS:
                raise ValueError(f"level: choose one of {', '.join(LEVELS)}")
            if record.state == "running":
                raise ValueError("The race goes on: wait for its end, or stop it.")
            specs = recording_specs(record, level, getattr(event, "probe_at", ()))
        except ValueError as error:
            yield handlers.refusal(who, f"Nothing to record. {error}")
            return
        shared = handlers.live_runs.is_shared(who, record.run_id)
        if shared or handlers.store.is_pinned(record):  # others read its recording
            record = record.copy()
        yield from self._record(record, specs, who)

    def record_short_run(self, request: gr.Request) -> Iterator[list[Any]]:
        """Record the visitor's last race after its end, if that takes less than `SHORT_SECONDS`.

        A race whose recording a limit refuses, or that would spend a quota, is not recorded, nor
        one that another visitor sees too. Nor is one while a run or another recording of the
        visitor goes on, which this one would stop. A race is considered once: this also follows
        uploads that run nothing.
        """
        handlers, who = self._handlers, visitor_id(request)
        record = handlers.current(request)
        specs: dict[str, RunSpec] | None = None
        if record is not None and record.record_next and not handlers.is_live(request):
            record.record_next = False
            if not handlers.live_runs.is_shared(who, record.run_id):
                specs = self._short_specs(record)
        if record is not None and specs is not None:
            yield from self._record(record, specs, who, asked=False)
        else:
            yield [gr.skip()] * (1 + len(BUTTONS))

    def _short_specs(self, record: RaceRecord) -> dict[str, RunSpec] | None:
        """The specs to record a finished, timed race; None if that may take long or is refused."""
        if record.state != "done" or record.recorded:
            return None
        seconds = sum(total_ms(trace) for trace in record.started().values()) / 1_000
        if not seconds * RECORDING_FACTOR < SHORT_SECONDS:
            return None
        session = self._handlers.session
        try:
            specs = recording_specs(record, "layers", ())
            if len(specs) == len(LANES):
                plans = list(race_plans(session, RaceSpec(**specs)).values())
            else:
                plans = [session.plan(spec) for spec in specs.values()]
        except ValueError:
            return None
        return None if any(plan.get("gpu_seconds") for plan in plans) else specs

    def _record(
        self, record: RaceRecord, specs: dict[str, RunSpec], who: str, asked: bool = True
    ) -> Iterator[list[Any]]:
        updates = partial(self._updates, record, specs, who)
        yield from self._handlers.live_updates(who, record, specs.values(), updates, asked)

    def _updates(
        self, record: RaceRecord, specs: dict[str, RunSpec], who: str, control: Control
    ) -> Iterator[list[Any]]:
        before, handlers = record.state, self._handlers
        if handlers.store.get(record.run_id) is None:  # a copy, which the page does not show yet
            handlers.store.put(record)
            yield [messages.whole(record, handlers.form.catalog.title), *buttons("recording")]
        yield [progress_message(record, "recording"), *buttons("recording")]
        try:
            yield from self._stream(record, specs, control, who)
        except Exception as error:
            yield [progress_message(record, before, error_text(error)), *buttons("over")]

    def _stream(
        self, record: RaceRecord, specs: dict[str, RunSpec], control: Control, who: str
    ) -> Iterator[list[Any]]:
        whole = sum(trace.steps for trace in record.started().values())
        traces, before, steps = {lane: Trace() for lane in specs}, record.state, 0
        updates = buttons("recording")  # set again, as in `Handlers.relay`
        with closing(self._events(specs, control, who)) as events:  # type: ignore[type-var]
            for batch in coalesce(events, MAX_HZ):
                for lane, event in batch:
                    traces[lane].append(event)
                    steps += isinstance(event, StepEvent)
                text = f"{steps} of {whole} steps recorded"
                yield [progress_message(record, "recording", text, batch[-1][1]), *updates]
                updates = [gr.skip()] * len(BUTTONS)
        problem = recording_problem(record, traces)
        if not problem:
            record.recorded = traces
            self._handlers.store.put(record)
        yield [progress_message(record, before, problem), *buttons("over")]

    def _events(self, specs: dict[str, RunSpec], control: Control, who: str) -> Iterator[Any]:
        session = self._handlers.session
        images = self._handlers.images.complete(who, list(specs.values()))
        parents = parents_of(self._handlers.store, specs.values())
        if len(specs) == 2:
            return session.race(RaceSpec(**specs), control, parents, images)
        lane, spec = next(iter(specs.items()))
        return ((lane, event) for event in session.run(spec, control, parents, images))


def total_ms(trace: Trace) -> float:
    """Milliseconds of a timed run; infinite if its times contain a recording or are unknown."""
    found = compare.clean_metrics(trace).get("total_ms") if compare.timed(trace) else None
    return math.inf if found is None else found


def recording_specs(record: RaceRecord, level: str, probe_at: Any) -> dict[str, RunSpec]:
    """The specs of a race's lanes with a recording level and the steps that `probe` compares.

    `probe_at` comes from the page. Its steps count those before a branch; a lane that took none of
    them is recorded without a probe. Raises ValueError naming `probe_at` if it is no list of steps,
    and for a run of another engine or one that was stopped.
    """
    chosen, found = checked_probes(probe_at, MAX_PROBES, MAX_PROBED_STEP), {}
    for lane, trace in record.started().items():
        foreign.check_ours(trace)
        if trace.meta["reason"] != "done":
            raise ValueError(
                f"Lane {lane.upper()} ended at step {trace.steps}, before its run was over. Only "
                "whole runs are recorded; run the race to its end."
            )
        first = trace.steps_before
        own = tuple(step - first for step in chosen if first <= step < first + trace.steps)
        reached = level if own or not chosen else "layers"
        found[lane] = replace(RunSpec.from_dict(trace.meta["spec"]), record=reached, probe_at=own)
    return found


def recording_problem(record: RaceRecord, traces: dict[str, Trace]) -> str:
    """Why a recording is discarded; empty if it has the same tokens as the timed run."""
    reasons = {trace.meta["reason"] for trace in traces.values()}
    if reasons != {"done"}:
        messages_ = [str(trace.meta.get("message") or "") for trace in traces.values()]
        return next(filter(None, messages_), "The recording was stopped and is discarded.")
    for lane, trace in record.started().items():
        timed = trace.canvas_at(trace.steps)
        if not np.array_equal(traces[lane].canvas_at(traces[lane].steps), timed):
            return (
                f"Lane {lane.upper()}: the recorded run gave other tokens than the timed run, so "
                "the recording is discarded. Run the race again."
            )
    return ""


def progress_message(
    record: RaceRecord, state: str, message: str = "", event: Event | None = None
) -> str:
    """A message that leaves the lanes as they are and carries the record's version.

    If `event` is a Waiting event, the message also has its state and progress.
    """
    return to_json(
        {
            "run": record.run_id, "state": state, "message": message, "lanes": {},
            "recorded": record.version,
        }
        | messages.last_wait([event])
    )  # fmt: skip
