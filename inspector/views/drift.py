"""Drift of K, V, the two outputs and the first head's query, by step, layer and position."""

from __future__ import annotations

from typing import Any

import numpy as np

from engine.core.events import QUANTITIES
from engine.trace.trace import Trace
from inspector.page_data.packing import packed


def drift(trace: Trace) -> dict[str, Any]:
    """The drift codes uint8 [S, L, Q, T] of a run recorded at level `layers`.

    Q counts `quantities`. Compare figure 2 of FlashDLM.
    """
    return {"quantities": list(QUANTITIES), "drift": packed(trace.arrays()["drift"])}


def drift_of(trace: Trace, quantity: str) -> np.ndarray:
    """The drift codes of one quantity, uint8 [S, L, T], a view of the recorded array.

    Raises ValueError if the run has no drifts.
    """
    codes = trace.arrays()["drift"]
    if not codes.size:
        raise ValueError("This run has no recorded drifts: press Record to see them.")
    return codes[:, :, QUANTITIES.index(quantity)]
