"""Messages to the page: JSON documents with new steps, a whole race, or a notice."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from engine.core.events import Event, RunFinished, RunStarted, StepEvent, Waiting
from engine.trace.trace import Trace
from inspector.page_data import compare, foreign, links, timeline, tokens
from inspector.protocol import Lane
from inspector.run_store import RaceRecord

Title = Callable[[Mapping[str, Any]], str]
EARLY = "Stopped before the first step. Nothing was computed."


class Feed:
    """Keeps the events of a race in its record and turns them into messages with the new data.

    With `begun`, the page already shows the race's first lane, so no message resets the page.
    """

    def __init__(self, record: RaceRecord, title: Title, begun: bool = False) -> None:
        self._record = record
        self._title = title
        self._begun = begun
        self._places: dict[Lane, np.ndarray] = {}

    def kept(self, events: Iterable[tuple[Lane, Event]]) -> Iterator[tuple[Lane, Event]]:
        """The same events, each appended to the record when it comes."""
        for lane, event in events:
            self._record.append(lane, event)
            yield lane, event

    def message(self, batch: Iterable[tuple[Lane, Event]], state: str) -> str:
        """The message for a batch of kept events."""
        lanes: dict[Lane, dict[str, Any]] = {}
        waiting: Waiting | None = None
        for lane, event in batch:
            waiting = event if isinstance(event, Waiting) else None
            self._add(lanes.setdefault(lane, {}), lane, event)
        head: dict[str, Any] = {
            "run": self._record.run_id,
            "state": waiting.state if waiting else state,
        }
        if waiting:
            head["wait"] = wait(waiting)
        news = {lane: part for lane, part in lanes.items() if part}
        first = bool(news) and not self._begun
        self._begun = self._begun or first
        if first:
            head["question"] = _question(self._record)
        return to_json(head | {"reset": first, "lanes": news})

    def _add(self, part: dict[str, Any], lane: Lane, event: Event) -> None:
        if isinstance(event, RunStarted):
            trace = self._record.traces[lane]
            self._places[lane] = timeline.places(trace)
            part["start"] = tokens.lane_start(trace, self._title(event.spec))
        elif isinstance(event, StepEvent):
            row = timeline.event_row(event, self._places[lane])
            part.setdefault("rows", []).append(row)
        elif isinstance(event, RunFinished) and lane in self._places:
            part["end"] = lane_end(self._record.traces[lane])
        if isinstance(event, RunStarted | StepEvent) and event.pieces:
            part.setdefault("pieces", {}).update(tokens.pieces(event.pieces, event.pieces))


def wait(event: Waiting) -> dict[str, Any]:
    """The progress of a Waiting event.

    Either `done` of `total` in a `unit` and `what` they are for, or the runs `ahead` and `seconds`
    to wait.
    """
    if event.state in ("lock", "gpu"):
        seconds = None if event.seconds is None else round(event.seconds)
        return {"ahead": event.ahead, "seconds": seconds}
    done = {"done": event.done, "total": event.total, "unit": event.unit}
    return done | {"what": event.what[:120]}


def last_wait(events: Sequence[Any]) -> dict[str, Any]:
    """`wait` with its `state`, if a task or a recording waits after `events`; else nothing."""
    last = events[-1] if events else None
    return {"wait": {"state": last.state, **wait(last)}} if isinstance(last, Waiting) else {}


def lane_end(trace: Trace) -> dict[str, Any]:
    """The end of a lane: reason, message, text and metrics."""
    return {
        "reason": trace.meta["reason"],
        "message": str(trace.meta.get("message") or "")[:1_000],
        "text": tokens.answer_text(trace),
        "metrics": compare.clean_metrics(trace),
    }


def whole(record: RaceRecord, title: Title) -> str:
    """A message with the whole race: lanes, steps, token texts, summary."""
    with record.lock:
        lanes = {}
        for lane, trace in record.started().items():
            lanes[lane] = {
                "start": tokens.lane_start(trace, foreign.title(trace, title)),
                "rows": timeline.trace_rows(trace),
                "pieces": tokens.pieces(trace.pieces, tokens.canvas_ids(trace)),
            }
            if trace.meta["reason"] != "running":
                lanes[lane]["end"] = lane_end(trace)
        out = {"run": record.run_id, "state": record.state, "reset": True, "lanes": lanes}
        out |= {"recorded": record.version, "parent": record.parent}
        out["question"] = _question(record)
        if record.state != "running":
            out["summary"] = compare.summarise(record.started(), record.expected)
            out["link"] = links.link(record)
        message = record.message or foreign.note(record.started())[:1_000]
        return to_json(out | ({"message": message} if message else {}))


def news(record: RaceRecord, since: Mapping[Lane, int]) -> str:
    """A message with the steps of the lanes in `since` from these steps on."""
    with record.lock:
        started, lanes = record.started(), {}
        for lane, first in since.items():
            trace = started.get(lane)
            rows = [] if trace is None else timeline.trace_rows(trace, first)
            if trace is not None and rows:
                ids = sorted({token for row in rows for token in row[-1][1::3]})
                lanes[lane] = {"rows": rows, "pieces": tokens.pieces(trace.pieces, ids)}
        return to_json({"run": record.run_id, "state": record.state, "lanes": lanes})


def notice(state: str, message: str = "") -> str:
    """A message without a run, with state `empty`, `failed` or `invalid_link`.

    The page keeps its lanes.
    """
    return to_json({"run": None, "state": state, "message": message[:1_000], "lanes": {}})


def final_state(record: RaceRecord) -> tuple[str, str]:
    """The final state of a race, and the message of a failed lane.

    Lane A of a branch is that of its parent, however it ended.
    """
    ran = [trace for lane, trace in record.traces.items() if lane == "b" or not record.parent]
    reasons = [trace.meta["reason"] for trace in ran]
    said = [str(trace.meta.get("message") or "") for trace in ran]
    state = next((bad for bad in ("memory", "failed") if bad in reasons), "stopped")
    if all(reason == "done" for reason in reasons):
        state = "done"
    early = EARLY if state == "stopped" and not any("spec" in trace.meta for trace in ran) else ""
    return state, next(filter(None, said), early)[:1_000]


def _question(record: RaceRecord) -> str:
    spec: Mapping[str, Any] = next((trace.meta["spec"] for trace in record.started().values()), {})
    prompt = spec.get("prompt")
    return tokens.question(prompt)[0][:2_000] if isinstance(prompt, str) else ""


def to_json(document: Mapping[str, Any]) -> str:
    """`document` as compact JSON."""
    return json.dumps(document, ensure_ascii=False, separators=(",", ":"))
