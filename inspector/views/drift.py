"""Drift of K, V, the two outputs and the first head's query, by step, layer and position."""

from __future__ import annotations

from typing import Any

from engine.core.events import QUANTITIES
from engine.trace.trace import Trace
from inspector.page_data.packing import packed


def drift(trace: Trace) -> dict[str, Any]:
    """The drift codes uint8 [S, L, Q, T] of a run recorded at level `layers`.

    Q counts `quantities`; 255 where nothing was recorded. Compare figure 2 of FlashDLM.
    """
    return {"quantities": list(QUANTITIES), "drift": packed(trace.cells("drift"))}
