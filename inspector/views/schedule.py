"""Schedule: what each step recomputed in each region and layer, and what was planned."""

from __future__ import annotations

from typing import Any

import numpy as np

from engine.core.regions import REGIONS
from engine.trace.trace import Trace
from inspector.page_data.packing import packed


def schedule(trace: Trace) -> dict[str, Any]:
    """The plans of a run recorded at level `steps` or above.

    Returns a document with:

    - `planned`, `done` [S, 3]: codes into `events.KINDS` by region; `planned` is empty if the
      trace has none; `differs` [n, 2]: the steps and regions where the two differ;
    - `portion` [S, 3]: share of a region's token-layers that was recomputed, NaN if it is empty;
    - `share` [S, L, 4]: share of a layer's rows that was recomputed, by site;
    - `running` [S]: percentage of token-layers recomputed up to each step, over all sites and
      guidance branches.

    Raises ValueError if the run has no plans.
    """
    arrays = trace.arrays()
    if not len(arrays["plan"]):
        raise ValueError(
            "This run has no recorded plans: press Record to see what each step recomputed."
        )
    planned, done, bits = arrays["planned"], trace.recomputed_kinds(), trace.recompute_map()
    known = planned != done if len(planned) else np.zeros(done.shape, bool)
    return {
        "regions": list(REGIONS),
        "planned": packed(planned),
        "done": packed(done),
        "differs": packed(np.argwhere(known).astype(np.int32)),
        "portion": packed(portion(bits, trace.region_rows(np.arange(len(bits))))),
        "share": packed(bits.mean(-1, dtype=np.float32)),
        "running": packed(running(arrays["recomputed"])),
    }


def portion(bits: np.ndarray, places: np.ndarray) -> np.ndarray:
    """Share of each region that was recomputed, float32 [S, 3]; NaN for an empty region.

    Args:
        bits: whether a row was recomputed, bool [S, L, 4, T].
        places: whether a position is in a region, bool [S, 3, T].
    """
    by_row = bits.mean((1, 2), dtype=np.float32)[:, None]
    rows = places.sum(-1)
    sums = np.where(places, by_row, 0).sum(-1)
    return np.where(rows > 0, sums / np.maximum(rows, 1), np.nan).astype(np.float32)


def running(recomputed: np.ndarray) -> np.ndarray:
    """Mean of the shares [S] up to each step, as a percentage, float32."""
    counts = np.arange(1, len(recomputed) + 1)
    return (100 * np.cumsum(recomputed) / counts).astype(np.float32)
