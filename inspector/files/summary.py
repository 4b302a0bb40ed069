"""Summary of a race as a table: one row per lane with its method, settings and results."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from engine.config.answers import number_of
from engine.trace.trace import Trace
from inspector.files.column_notes import SUMMARY
from inspector.files.tables import written
from inspector.page_data import compare, foreign
from inspector.page_data.lane_card import lane_card
from inspector.page_data.messages import Title
from inspector.run_store import RaceRecord


def summary_table(record: RaceRecord, title: Title) -> str:
    """The table of lanes as CSV; a cell is empty if the race has no such fact."""
    lanes = record.started()
    found = compare.summarise(lanes, record.expected)
    answers = compare.known_answers(len(lanes), record.expected, found["apart"])
    rows = []
    for i, (lane, trace) in enumerate(lanes.items()):
        row = {"lane": lane.upper(), "title": foreign.title(trace, title)}
        row |= (
            _lane(trace)
            | _accuracy(found, i, answers[i])
            | (_beside_a(found) if lane == "b" else {})
        )
        rows.append([row.get(name) for name in SUMMARY])
    return written(list(SUMMARY), rows)


def _lane(trace: Trace) -> dict[str, Any]:
    """Settings and metrics of a lane; only the columns of the table are used."""
    card = lane_card(trace)
    spec, results = card["spec"], card["results"]
    knobs = spec.get("knobs")
    pairs = sorted(knobs.items()) if isinstance(knobs, Mapping) else []
    settings = {name: spec.get(name) for name in SUMMARY if name in spec}
    return (
        settings
        | {"knobs": "; ".join(f"{name}={value}" for name, value in pairs)}
        | {"device_name": card["device"]["device_name"], "reason": results["reason"]}
        | results["metrics"]
    )


def _accuracy(found: Mapping[str, Any], place: int, expected: str | None) -> dict[str, Any]:
    """The answer of a lane and whether it is right; a number is one, also below 0."""
    number = None if expected is None else number_of(expected)
    answer = found["numbers"][place]  # a text if it is too large for a browser
    return {
        "answer": None if answer is None else int(answer),
        "expected": expected if number is None else number,
        "right": _flag(found["right"][place]),
    }


def _beside_a(found: Mapping[str, Any]) -> dict[str, Any]:
    """Lane B beside lane A."""
    first = found["first_divergence"]
    return {
        "speedup_over_a": found["speedup"],
        "agreement_with_a": found["agreement"],
        "first_difference": None if first is None else first + 1,
        "same_answer_as_a": _flag(found["same_answer"]),
    }


def _flag(value: bool | None) -> int | None:
    return None if value is None else int(value)
