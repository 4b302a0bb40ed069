"""One lane of a race as a card: spec, versions, device, model, guider and results."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from engine.trace.trace import Trace
from inspector.page_data import compare
from inspector.page_data.packing import finite
from inspector.page_data.tokens import answer_text

VERSIONS = ("torch", "python", "system")
PLACE = (
    "device", "device_name", "dtype", "threads", "cores", "free_before_bytes", "free_after_bytes",
)  # fmt: skip
CLOCKED = (
    "total_ms", "text_ms", "forward_ms", "decide_ms", "ms_per_step", "tokens_per_s",
    "positions_per_s", "guider_ms", "guider_prefill_ms", "guider_share",
)  # fmt: skip
MAX_TEXT = 200


def lane_card(trace: Trace) -> dict[str, Any]:
    """One lane: its spec, versions, device, model and guider with digests, and results.

    The facts come from a trace, which may be an imported file, so each is reduced to a scalar.
    """
    meta = trace.meta
    place, model = meta["environment"], meta["model"]
    sizes = ("name", "family", "layers", "d_model", "n_heads", "n_kv_heads", "vocab_size")
    return {
        "spec": finite(meta["spec"]),
        "seed": _plain(meta["spec"].get("seed")),
        "trace_version": meta["version"],
        "versions": _few(place, VERSIONS),
        "device": _few(place, PLACE),
        "model": _few(model, sizes) | {"digest": _plain(place.get("checkpoint"))},
        "guider": guider_facts(trace) if len(trace.arrays()["guided_count"]) else None,
        "results": {
            "reason": meta["reason"],
            "steps": trace.steps,
            "text": answer_text(trace),
            "metrics": _metrics(trace),
        },
    }


def guider_facts(trace: Trace) -> dict[str, Any]:
    """The guider of a run: name, prompt form, digest, sizes and whether the vocabulary is shared.

    The facts come from a trace, which may be an imported file, so each is reduced to a scalar.
    """
    given = trace.meta.get("guider")
    found: Mapping[str, Any] = given if isinstance(given, Mapping) else {}
    sizes = {n: found.get(n) for n in ("vocab_size", "layers", "parameters")}
    names = {n: str(found.get(n) or "")[:120] for n in ("name", "prompt", "digest")}
    whole = {n: value if type(value) is int else None for n, value in sizes.items()}
    return names | whole | {"shared": found.get("shared") is True}


def _metrics(trace: Trace) -> dict[str, float | None]:
    """The metrics of a run, without times if layers were recorded in it."""
    found, timed = compare.clean_metrics(trace), compare.timed(trace)
    return {name: value for name, value in found.items() if timed or name not in CLOCKED}


def _few(found: Mapping[str, Any], names: tuple[str, ...]) -> dict[str, Any]:
    return {name: _plain(found.get(name)) for name in names}


def _plain(value: Any) -> Any:
    """The value as a scalar; a whole number that JSON readers would round becomes a text."""
    if value is None or type(value) is bool or (type(value) is int and abs(value) <= compare.EXACT):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    return str(value)[:MAX_TEXT]
