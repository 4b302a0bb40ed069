"""Schedule: what each step renewed of each region and layer, beside what the clock planned."""

from __future__ import annotations

from typing import Any

import numpy as np

from engine.core.regions import REGIONS
from engine.trace.trace import Trace
from inspector.page_data.packing import packed


def schedule(trace: Trace) -> dict[str, Any]:
    """Plans of a run recorded at level `steps` or above; ValueError where none were kept.

    `planned`, `done` [S, 3] are codes into events.KINDS by `regions`, `planned` empty where the
    trace has none; `differs` [n, 2] names the steps and regions in which they are not the same.
    `portion` [S, 3] is the share of a region's token-layers that was recomputed (NaN: an empty
    region), `share` [S, L, 4] that of a layer's rows by site, `running` [S] the percentage of
    token-layers recomputed up to each step, all sites and guidance branches together.
    """
    arrays = trace.arrays()
    if not len(arrays["plan"]):
        raise ValueError("This run kept no plans: press Record to see what each step recomputed.")
    planned, done, bits = arrays["planned"], trace.done(), trace.recompute_map()
    known = planned != done if len(planned) else np.zeros(done.shape, bool)
    return {
        "regions": list(REGIONS),
        "planned": packed(planned),
        "done": packed(done),
        "differs": packed(np.argwhere(known).astype(np.int32)),
        "portion": packed(portion(bits, trace.areas(np.arange(len(bits))))),
        "share": packed(bits.mean(-1, dtype=np.float32)),
        "running": packed(running(arrays["recomputed"])),
    }


def portion(bits: np.ndarray, places: np.ndarray) -> np.ndarray:
    """Share of each region recomputed, float32 [S, 3]: `bits` [S, L, 4, T], `places` [S, 3, T]."""
    by_row = bits.mean((1, 2), dtype=np.float32)[:, None]
    rows = places.sum(-1)
    sums = np.where(places, by_row, 0).sum(-1)
    return np.where(rows > 0, sums / np.maximum(rows, 1), np.nan).astype(np.float32)


def running(recomputed: np.ndarray) -> np.ndarray:
    """Mean of the shares [S] up to each step, as a percentage, float32."""
    counts = np.arange(1, len(recomputed) + 1)
    return (100 * np.cumsum(recomputed) / counts).astype(np.float32)
