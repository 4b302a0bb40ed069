"""Why: what a run's cache went by, so that the page can say of any row why it was recomputed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from engine.core.events import KINDS
from engine.trace.trace import Trace
from inspector.page_data.packing import packed

FULL = KINDS.index("full")
CLOCKS = {
    "dllm_cache": ("prompt_interval", "response_interval", "response_interval"),
    "spa_cache": ("refresh_interval", "response_interval", "response_interval"),
}


def why(trace: Trace) -> dict[str, Any]:
    """The rule of a run's cache as data; ValueError where no plans were recorded.

    `parts` are the cache's names (`a+b` is b on a), `shift` is how far the row that predicts a
    token stands before it, `due` [S, 3] marks where the clock renews a whole region (prompt,
    current block, rest of the answer), `periods` its usual gaps in steps (None: no two renewals
    were seen and the spec does not say), `threshold` and `budget` per layer where the method has
    them, `knobs` what the spec sets of the cache.
    """
    arrays, spec = trace.arrays(), trace.meta["spec"]
    if not len(arrays["plan"]):
        raise ValueError("This run kept no plans: press Record to see why rows were recomputed.")
    parts = str(spec.get("cache", "none"))[:60].split("+")[:2]
    found, knobs = trace.meta.get("facts"), _knobs(spec.get("knobs"), parts)
    facts: Mapping[str, Any] = found if isinstance(found, Mapping) else {}
    due = renewals(trace)
    return {
        "parts": parts,
        "shift": 1 if trace.meta["model"].get("logit_shift") == 1 else 0,
        "due": packed(due),
        "periods": [_period(due[:, i], _knob(knobs, parts[0], i)) for i in range(due.shape[1])],
        "threshold": facts.get("threshold"),
        "budget": facts.get("budget"),
        "knobs": knobs,
    }


def renewals(trace: Trace) -> np.ndarray:
    """Where the clock renews a whole region, bool [S, 3]: as planned, or as it was done."""
    planned = trace.arrays()["planned"]
    return (planned if len(planned) else trace.recomputed_kinds()) == FULL


def _period(due: np.ndarray, knob: int | None) -> int | None:
    gaps = np.diff(np.flatnonzero(due))
    if knob is not None or not len(gaps):
        return knob
    return int(np.bincount(gaps).argmax())


def _knob(knobs: Mapping[str, Any], part: str, region: int) -> int | None:
    value = knobs.get(f"{part}.{CLOCKS[part][region]}") if part in CLOCKS else None
    return value if type(value) is int and value > 0 else None


def _knobs(given: Any, parts: list[str]) -> dict[str, Any]:
    if not isinstance(given, Mapping):
        return {}
    known = {k: v for k, v in given.items() if isinstance(k, str) and k.split(".")[0] in parts}
    return dict(list(known.items())[:40])
