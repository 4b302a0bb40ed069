"""Messages to the page: small JSON documents, and one that holds a whole race."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np

from engine.core.events import Event, RunFinished, RunStarted, StepEvent, Waiting
from engine.trace.trace import Trace
from inspector.page_data import compare, timeline, tokens
from inspector.protocol import Lane
from inspector.run_store import RaceRecord

Title = Callable[[Mapping[str, Any]], str]
EARLY = "Stopped before the first step: nothing was computed."


class Feed:
    """Turns batches of events into messages that carry only what is new.

    `begun` says that the page has the race's first lane already and must not begin anew.
    """

    def __init__(self, record: RaceRecord, title: Title, begun: bool = False) -> None:
        self._record = record
        self._title = title
        self._begun = begun
        self._places: dict[Lane, np.ndarray] = {}

    def message(self, batch: Iterable[tuple[Lane, Event]], state: str) -> str:
        """Take a batch into the record and say what is new in it."""
        lanes: dict[Lane, dict[str, Any]] = {}
        waiting: Waiting | None = None
        for lane, event in batch:
            self._record.append(lane, event)
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
        return _dump(head | {"reset": first, "lanes": news})

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
    """What is waited for, as in Waiting: bytes `done` of `total`, or runs `ahead` and `seconds`."""
    if event.state in ("lock", "gpu"):
        seconds = None if event.seconds is None else round(event.seconds)
        return {"ahead": event.ahead, "seconds": seconds}
    return {"done": event.done, "total": event.total, "what": event.what[:120]}


def lane_end(trace: Trace) -> dict[str, Any]:
    """How a lane ended."""
    return {
        "reason": trace.meta["reason"],
        "message": str(trace.meta.get("message") or "")[:1_000],
        "text": tokens.answer_text(trace),
        "metrics": compare.clean_metrics(trace),
    }


def whole(record: RaceRecord, title: Title) -> str:
    """Everything of a race, so that it can be replayed from this message alone."""
    with record.lock:
        lanes = {}
        for lane, trace in record.started().items():
            lanes[lane] = {
                "start": tokens.lane_start(trace, title(trace.meta["spec"])),
                "rows": timeline.trace_rows(trace),
                "pieces": tokens.pieces(trace.pieces, trace.pieces),
            }
            if trace.meta["reason"] != "running":
                lanes[lane]["end"] = lane_end(trace)
        out = {"run": record.run_id, "state": record.state, "reset": True, "lanes": lanes}
        out |= {"recorded": record.version, "parent": record.parent}
        if record.state not in ("running", "paused"):
            out["summary"] = compare.summarise(record.started(), record.expected)
            out["question"] = _question(record)
        return _dump(out | ({"message": record.message} if record.message else {}))


def notice(state: str, message: str = "") -> str:
    """A message with no run in it: `empty` or `failed`; what is drawn stays."""
    return _dump({"run": None, "state": state, "message": message[:1_000], "lanes": {}})


def final_state(record: RaceRecord) -> tuple[str, str]:
    """What a race came to, and the message of a lane that failed."""
    reasons = [trace.meta["reason"] for trace in record.traces.values()]
    said = [str(trace.meta.get("message") or "") for trace in record.traces.values()]
    state = next((bad for bad in ("memory", "failed") if bad in reasons), "stopped")
    if all(reason == "done" for reason in reasons):
        state = "done"
    early = EARLY if state == "stopped" and not record.started() else ""
    return state, next(filter(None, said), early)[:1_000]


def _question(record: RaceRecord) -> str:
    spec: Mapping[str, Any] = next((trace.meta["spec"] for trace in record.started().values()), {})
    prompt = spec.get("prompt")
    return tokens.question(prompt)[0][:2_000] if isinstance(prompt, str) else ""


def _dump(document: dict[str, Any]) -> str:
    return json.dumps(document, ensure_ascii=False, separators=(",", ":"))
