"""Replay page: a race and its views as one HTML file that works without a server."""

from __future__ import annotations

import base64
import hashlib
import html
import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from engine.core.events import QUANTITIES, SITES
from engine.trace.trace import Trace
from inspector import static_files
from inspector.page_data import messages
from inspector.run_store import RaceRecord
from inspector.views import registry

MAX_BYTES, NOTE_BYTES = 8_000_000, 1_000
MOST_PACKED = 50  # recorded drifts are hardly packed to less than a fiftieth
BY_LAYER = ("scatter", "queries", "error")  # views that count in each layer by itself
MOST_LAYERS = 256  # of these views; a trace file may have more, no model has
FIRST = ("frame", "plan", "why", "candidates", "run_card")  # the rest of the page needs these
ESCAPES = {"<": "\\u003c", "\u2028": "\\u2028", "\u2029": "\\u2029"}
WHOLE = "It contains everything that was recorded."
Caches = Sequence[Mapping[str, Any]]
MARK = re.compile(r"<!-- (\w+) -->")


def replay_page(
    record: RaceRecord, title: messages.Title, limit: int = MAX_BYTES, caches: Caches = ()
) -> str:
    """An HTML page that replays a race with all views that its traces have.

    `caches` are those of the catalog, whose reasons the token card shows.

    Its content security policy allows only its own script and no requests. If the file would be
    larger than `limit` bytes, the largest views are left out and the page names them; so are views
    that would take minutes to make.
    """
    race = json.loads(messages.whole(record, title))
    script = static_files.text("replay.js")
    parts = {
        "css": static_files.css() + static_files.text("replay.css"),
        "race": static_files.template("race"),
        "script": script,
        "hash": "sha256-" + base64.b64encode(hashlib.sha256(script.encode()).digest()).decode(),
    }
    fixed = [*parts.values(), static_files.text("replay.html"), _data(race, {})]
    room = limit - NOTE_BYTES - sum(len(part.encode()) for part in fixed)
    views, missing = _views(record, room, caches)
    parts |= {"note": html.escape(_note(missing, limit)), "data": _data(race, views)}
    return MARK.sub(lambda found: parts[found[1]], static_files.text("replay.html"))


def _views(
    record: RaceRecord, room: int, caches: Caches
) -> tuple[dict[str, dict[str, str]], list[str]]:
    """The views of each lane as escaped JSON, in at most `room` bytes, and the names left out."""
    found: dict[tuple[str, str], str] = {}
    missing = []
    for lane in record.started():
        for name in registry.VIEWS:
            trace = record.trace_for_views(lane, name in registry.TIMED)
            assert trace is not None
            if _takes_long(name, trace, room):
                missing.append(_titled(name, lane))
                continue
            found[lane, name] = _escaped(registry.draw(trace, name, caches))
    order = sorted(found, key=lambda key: (key[1] not in FIRST, len(found[key])))
    views: dict[str, dict[str, str]] = {lane: {} for lane, _ in found}
    for lane, name in order:
        size = len(found[lane, name].encode()) + len(name) + 4
        if size > room:
            missing.append(_titled(name, lane))
            continue
        room -= size
        views[lane][name] = found[lane, name]
    return views, missing


def _takes_long(name: str, trace: Trace, room: int) -> bool:
    """Whether a view is not worth its making: minutes of packing, or of counting in layers."""
    many_layers = name in BY_LAYER and trace.layers > MOST_LAYERS
    return many_layers or _packed_bytes(name, trace) > MOST_PACKED * room


def _packed_bytes(name: str, trace: Trace) -> int:
    """Bytes of the cells that a view packs; 0 for a view without cells of every row.

    Those of a narrowed run are all packed, blank where nothing was recorded.
    """
    arrays = trace.arrays()
    drifts, changes = (trace.steps * bool(len(arrays[n])) for n in ("drift", "expert_changes"))
    planes = {  # with a cell for each layer and row
        "drift": drifts * len(QUANTITIES),
        "queries": drifts,
        "experts": changes + len(arrays["probe_expert_changes"]),
        "error": len(arrays["probe_step"]) * len(SITES),
    }
    return planes.get(name, 0) * trace.layers * len(arrays["canvas"])


def _titled(name: str, lane: str) -> str:
    return f"{name} of lane {lane.upper()}"


def _note(missing: list[str], limit: int) -> str:
    if not missing:
        return WHOLE
    return (
        f"Left out, to keep the file under {limit / 1e6:g} MB and quick to make: "
        f"{', '.join(missing)}. "
        "Import the traces into Driftscope to see them."
    )


def _data(race: dict[str, Any], views: dict[str, dict[str, str]]) -> str:
    lanes = (
        f'"{lane}":{{' + ",".join(f'"{name}":{text}' for name, text in own.items()) + "}"
        for lane, own in views.items()
    )
    return f'{{"race":{_escaped(race)},"views":{{{",".join(lanes)}}}}}'


def _escaped(document: Any) -> str:
    """JSON that is safe inside a script element of an HTML page."""
    text = json.dumps(document, ensure_ascii=False, separators=(",", ":"))
    for char, escape in ESCAPES.items():
        text = text.replace(char, escape)
    return text
