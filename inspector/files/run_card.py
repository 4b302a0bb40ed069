"""Run card: the settings, environment and results of a race, and the command that repeats it."""

from __future__ import annotations

from typing import Any

from inspector.page_data import compare, foreign
from inspector.page_data.lane_card import lane_card
from inspector.run_store import RaceRecord

REPEAT = "python -m engine repeat driftscope-{name}-run-card.json"


def run_card(record: RaceRecord) -> dict[str, Any]:
    """A race as one JSON document; `repeat` is a command, or None if there is none.

    Branches and runs of other engines cannot be repeated by one.
    """
    lanes = record.started()
    whole = not any(t.meta["spec"].get("start") or foreign.facts(t) for t in lanes.values())
    name = record.run_id[:8]
    return {
        "run": name,
        "lanes": {lane: lane_card(trace) for lane, trace in lanes.items()},
        "summary": compare.summarise(lanes, record.expected),
        "repeat": REPEAT.format(name=name) if whole else None,
    }
