"""Drift of K, V, the two outputs and the first head's query, by step, layer and position."""

from __future__ import annotations

from typing import Any

import numpy as np

from engine.core.events import QUANTITIES
from engine.trace.cells import EVERY
from engine.trace.trace import Trace
from inspector.page_data.packing import packed


def drift(trace: Trace) -> dict[str, Any]:
    """The drift codes uint8 [S, L, Q, T] of a run recorded at level `layers`.

    Q counts `quantities`; 255 where nothing was recorded. Compare figure 2 of FlashDLM.
    """
    return {"quantities": list(QUANTITIES), "drift": packed(trace.cells("drift"))}


def check(trace: Trace) -> None:
    """Raise ValueError if the run has no drifts."""
    if not trace.arrays()["drift"].size:
        raise ValueError("This run has no recorded drifts: press Record to see them.")


def drift_of(
    trace: Trace, quantity: str, steps: slice = EVERY, layers: slice = EVERY
) -> np.ndarray:
    """The drift codes of one quantity, uint8 [S, L, T], 255 where nothing was recorded.

    `steps` and `layers` choose a part of them. Raises ValueError if the run has no drifts.
    """
    check(trace)
    index = QUANTITIES.index(quantity)
    return trace.cells("drift", steps, layers, slice(index, index + 1))[:, :, 0]
