"""Drift of K, V, the two outputs and head 0's query, step by layer by position."""

from __future__ import annotations

from typing import Any

from engine.core.events import QUANTITIES
from engine.trace.trace import Trace
from inspector.page_data.packing import packed


def drift(trace: Trace) -> dict[str, Any]:
    """The drift codes [S, L, Q, T] of a run recorded at level `layers` (FlashDLM, figure 2)."""
    return {"quantities": list(QUANTITIES), "drift": packed(trace.arrays()["drift"])}
