"""Run card: the settings, environment and results of a race, and the command that repeats it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from engine.config.run_card import is_card, race_of
from engine.config.spec import RaceSpec
from inspector.page_data import compare, foreign
from inspector.page_data.lane_card import lane_card
from inspector.run_store import RaceRecord

MAX_CARD_BYTES = 1_000_000
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


def race_of_file(paths: Sequence[str | Path]) -> RaceSpec | None:
    """The race of an uploaded run card; None if the files are anything else.

    Raises ValueError naming what is wrong with the card.
    """
    if len(paths) != 1 or Path(paths[0]).stat().st_size > MAX_CARD_BYTES:
        return None
    try:
        document = json.loads(Path(paths[0]).read_bytes())
    except (ValueError, RecursionError):
        return None
    return race_of(document) if is_card(document) else None
