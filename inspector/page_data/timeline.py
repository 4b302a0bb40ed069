"""The steps of a lane as compact rows, made from events or from a trace."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from engine.core.events import KINDS, StepEvent
from engine.trace.trace import Trace
from inspector.page_data.tokens import generation

Row = list[Any]


def places(trace: Trace) -> np.ndarray:
    """Index within the answer of every position, int64 [T]; -1 in the prompt."""
    index = np.full(len(trace.arrays()["canvas"]), -1, np.int64)
    shown = generation(trace)
    index[shown] = np.arange(len(shown))
    return index


def event_row(event: StepEvent, index: np.ndarray) -> Row:
    """One step as [number, block, kind, rows, forwards, masks left, ms, commits].

    Args:
        event: the step.
        index: the index within the answer of every position; see `places`.

    `commits` is a flat list of three values for each token: index in the answer, token id,
    confidence in thousandths. The confidence is -1 for tokens filled in after the end of text, and
    a whole number unless it would be that of 0 or 1.
    """
    commits = _commits(index[event.positions], event.ids, event.confidence)
    head = [event.step, event.block, KINDS.index(event.kind), event.rows, event.forwards]
    return [*head, event.masks_left, _ms(event.step_ms), commits]


def trace_rows(trace: Trace, first: int = 0) -> list[Row]:
    """The steps of a trace from step `first` on, each in the form of `event_row`."""
    arrays, index = trace.arrays(), places(trace)
    starts = np.searchsorted(arrays["commit_step"], np.arange(trace.steps + 1))
    place = index[arrays["commit_position"]]
    rows = []
    for step in range(first, trace.steps):
        part = slice(starts[step], starts[step + 1])
        commits = _commits(
            place[part], arrays["commit_id"][part], arrays["commit_confidence"][part]
        )
        head = [int(arrays[name][step]) for name in ("block", "kind", "rows", "forwards")]
        took = float(arrays["forward_ms"][step] + arrays["decide_ms"][step])
        rows.append([step, *head, int(arrays["masks_left"][step]), _ms(took), commits])
    return rows


def _commits(place: np.ndarray, ids: np.ndarray, confidence: np.ndarray) -> list[float]:
    flat: list[float] = []
    for where, token, sure in zip(place.tolist(), ids.tolist(), confidence.tolist(), strict=True):
        if where >= 0:
            flat += [where, token, _thousandths(sure) if math.isfinite(sure) else -1]
    return flat


def _thousandths(sure: float) -> float:
    near = round(sure * 1000)
    return near if 0 < near < 1000 or near == sure * 1000 else round(sure * 1000, 4) or sure * 1000


def _ms(value: float) -> float:
    return round(value, 2)
