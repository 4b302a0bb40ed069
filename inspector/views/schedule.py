"""Schedule: what each step recomputed in each region and layer, and what was planned."""

from __future__ import annotations

from typing import Any

import numpy as np

from engine.core.regions import REGIONS
from engine.trace.trace import Trace
from inspector.page_data.packing import packed


def schedule(trace: Trace) -> dict[str, Any]:
    """The plans of a run recorded at level `steps` or above, packed for the page.

    Returns a document with `regions`, their names, and the arrays of `plans`. Raises ValueError if
    the run has no plans.
    """
    found = {name: packed(array) for name, array in plans(trace).items()}
    return {"regions": list(REGIONS), **found}


def plans(trace: Trace) -> dict[str, np.ndarray]:
    """What each step recomputed, and what was planned.

    Returns these arrays:

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
        "planned": planned,
        "done": done,
        "differs": np.argwhere(known).astype(np.int32),
        "portion": portion(bits, trace.region_rows(np.arange(len(bits)))),
        "share": bits.mean(-1, dtype=np.float32),
        "running": running(arrays["recomputed"]),
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
