"""Run card: what a race was, where and with what it was run, what came out, how to repeat it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from engine.trace import Trace
from inspector.shelf import Record
from inspector.views import compare, guider
from inspector.views.tokens import answer_text

REPEAT = "python -m engine.repeat driftscope-{name}-run-card.json"
VERSIONS = ("torch", "python", "system")
PLACE = (
    "device", "device_name", "dtype", "threads", "cores", "free_before_bytes", "free_after_bytes",
)  # fmt: skip
CLOCKED = (
    "total_ms", "forward_ms", "decide_ms", "ms_per_step", "tokens_per_s", "positions_per_s",
    "guider_ms", "guider_prefill_ms", "guider_share",
)  # fmt: skip
MAX_TEXT = 200


def lane_card(trace: Trace) -> dict[str, Any]:
    """One lane: its spec, versions, device, model and guider with digests, and results.

    A trace that came as a file says these itself; its short facts are cut to plain scalars.
    """
    meta = trace.meta
    place, model = meta["environment"], meta["model"]
    sizes = ("name", "family", "layers", "d_model", "n_heads", "n_kv_heads", "vocab_size")
    return {
        "spec": meta["spec"],
        "seed": _plain(meta["spec"].get("seed")),
        "trace_version": meta["version"],
        "versions": _few(place, VERSIONS),
        "device": _few(place, PLACE),
        "model": _few(model, sizes) | {"digest": _plain(place.get("checkpoint"))},
        "guider": guider.about(trace) if len(trace.arrays()["guided_count"]) else None,
        "results": {
            "reason": meta["reason"],
            "steps": trace.steps,
            "text": answer_text(trace),
            "metrics": _metrics(trace),
        },
    }


def run_card(record: Record) -> dict[str, Any]:
    """A race as one JSON document; `repeat` is a command, None where it goes on from another."""
    lanes = record.started()
    whole = not any(trace.meta["spec"].get("start") for trace in lanes.values())
    name = record.run_id[:8]
    return {
        "run": name,
        "lanes": {lane: lane_card(trace) for lane, trace in lanes.items()},
        "summary": compare.summarise(lanes, record.expected),
        "repeat": REPEAT.format(name=name) if whole else None,
    }


def _metrics(trace: Trace) -> dict[str, float | None]:
    """The metrics, without those of clocks that had a recorder in them."""
    found, timed = compare.clean_metrics(trace), compare.timed(trace)
    return {name: value for name, value in found.items() if timed or name not in CLOCKED}


def _few(found: Mapping[str, Any], names: tuple[str, ...]) -> dict[str, Any]:
    return {name: _plain(found.get(name)) for name in names}


def _plain(value: Any) -> Any:
    if value is None or type(value) in (bool, int):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    return str(value)[:MAX_TEXT]
