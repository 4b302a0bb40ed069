"""Drift of K, V, the two outputs and the first head's query, and of one against another.

`scatter` shows whether the drift of one quantity predicts that of another, row by row.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from engine.core.drift_codes import DRIFTS as ALL_DRIFTS
from engine.core.drift_codes import NOT_EVALUATED
from engine.core.events import QUANTITIES
from engine.trace.cells import EVERY
from engine.trace.trace import Trace
from inspector.page_data.packing import packed
from inspector.page_data.row_counts import step_windows

FLOOR, BINS = 1e-4, 48  # twelve bins per decade: the finest in which no bin is without a code
PAIRS = (("v", "attn"), ("v", "ffn"), ("q0", "k"), ("q0", "v"), ("q0", "attn"))
TOGETHER = (("v", "attn", "ffn"), ("q0", "k", "v", "attn"))  # quantities compared on the same rows
MAX_ROWS = 4_000_000  # rows of all layers that are counted for a pair
DRIFTS = ALL_DRIFTS[:NOT_EVALUATED]
LOGS = np.log10(np.maximum(DRIFTS, FLOOR))
BIN_OF = np.minimum((BINS * (LOGS / -np.log10(FLOOR) + 1)).astype(int), BINS - 1)


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


def scatter(trace: Trace) -> dict[str, Any]:
    """Joint histograms and correlations of PAIRS (dLLM-Cache, figure 2; DARE, figure 2).

    Returns a document with:

    - `counts` int32 [P, L, BINS, BINS]: number of rows by log drift from FLOOR to 1; the first
      quantity of the pair is the first of the two axes;
    - `stats` float32 [P, L + 1, 3]: Pearson's r of the drifts, Pearson's r of their logarithms and
      Spearman's rank correlation, NaN if undefined; the last entry is for all layers together;
    - `rows` [P, L + 1]: number of rows counted;
    - `every`: the distance of the steps counted, as `counted_steps` gives it;
    - `most`: the number of rows in a layer under plain decoding in so many steps, recorded or not.

    Raises ValueError if the run has no drifts.
    """
    check(trace)
    steps, every = counted_steps(trace)
    found = [of_pair(trace, *pair, steps) for pair in PAIRS]
    counts, stats, rows = (np.stack(parts) for parts in zip(*found, strict=True))
    return {
        "pairs": [list(pair) for pair in PAIRS],
        "counts": packed(counts),
        "stats": packed(stats.astype(np.float32)),
        "rows": packed(rows.astype(np.int32)),
        "every": every,
        "most": (-(-trace.steps // every) - 1) * len(trace.arrays()["canvas"]),
    }


def counted_steps(trace: Trace) -> tuple[slice, int]:
    """Evenly spaced recorded steps with at most MAX_ROWS rows in all layers, and their distance.

    These are all recorded steps if they have no more rows. The trace has drifts.
    """
    arrays = trace.arrays()
    every = recorded_every(trace) * -(-arrays["drift"][:, :, 0].size // MAX_ROWS)
    return slice(int(arrays["drift_step"][0]), None, every), every


def recorded_every(trace: Trace) -> int:
    """The distance of the steps whose drifts were recorded; 1 if there are not two of them."""
    steps = trace.arrays()["drift_step"]
    return int(np.diff(steps).min()) if len(steps) > 1 else 1


def of_pair(
    trace: Trace, x: str, y: str, steps: slice = EVERY
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Counts [L, BINS, BINS], correlations [L + 1, 3] and rows [L + 1] of two quantities.

    A row of `steps` is counted if all quantities of its entry in TOGETHER that were recorded are
    known.
    """
    whole = np.zeros((NOT_EVALUATED, NOT_EVALUATED), np.int64)
    counts, stats, rows = [], [], []
    for layer in range(trace.layers):
        joint = joint_counts(trace, x, y, layer, steps)
        whole += joint
        counts.append(binned(joint))
        stats.append(correlations(joint))
        rows.append(joint.sum())
    return np.stack(counts), np.array([*stats, correlations(whole)]), np.array([*rows, whole.sum()])


def joint_counts(trace: Trace, x: str, y: str, layer: int, steps: slice = EVERY) -> np.ndarray:
    """Number of a layer's rows by the codes of two quantities, int64 [NOT_EVALUATED] * 2.

    Rows are counted as in `of_pair`.
    """
    own = slice(layer, layer + 1)
    first, second = (drift_of(trace, name, steps, own)[:, 0] for name in (x, y))
    recorded = {QUANTITIES[i] for i in trace.arrays()["recorded_quantity"].tolist()}
    names = next(together for together in TOGETHER if {x, y} <= set(together))
    for name in (set(names) & recorded) - {x, y}:
        unknown = drift_of(trace, name, steps, own)[:, 0] == NOT_EVALUATED
        first = np.where(unknown, np.uint8(NOT_EVALUATED), first)
    counts = np.zeros(256 * 256, np.int64)
    for window in step_windows(len(first)):
        codes = first[window].astype(np.uint16) << 8 | second[window]
        counts += np.bincount(codes.ravel(), minlength=256 * 256)
    return counts.reshape(256, 256)[:NOT_EVALUATED, :NOT_EVALUATED]


def binned(joint: np.ndarray) -> np.ndarray:
    """Sum counts by code [NOT_EVALUATED, NOT_EVALUATED] into counts by bin, int32 [BINS, BINS]."""
    starts = np.searchsorted(BIN_OF, np.arange(BINS))
    return np.add.reduceat(np.add.reduceat(joint, starts, 0), starts, 1).astype(np.int32)


def correlations(joint: np.ndarray) -> tuple[float, float, float]:
    """Pearson's r of the drifts and of their logarithms, and Spearman's rank correlation.

    `joint` [NOT_EVALUATED, NOT_EVALUATED] counts rows by both codes. NaN if either of the two
    quantities is constant.
    """
    return (
        pearson(joint, DRIFTS, DRIFTS),
        pearson(joint, LOGS, LOGS),
        pearson(joint, ranks(joint.sum(1)), ranks(joint.sum(0))),
    )


def pearson(joint: np.ndarray, x: np.ndarray, y: np.ndarray) -> float:
    """Pearson's r of values x [n] and y [m] that occur together `joint` [n, m] times."""
    total = joint.sum()
    if not total:
        return float("nan")
    wide, high = joint.sum(1), joint.sum(0)
    x, y = x - wide @ x / total, y - high @ y / total
    spread = (wide @ x**2) * (high @ y**2)
    constant = min((wide > 0).sum(), (high > 0).sum()) < 2
    return float("nan") if constant or not spread > 0 else float(x @ joint @ y / spread**0.5)


def ranks(counts: np.ndarray) -> np.ndarray:
    """The mean rank of each value; `counts` [n] is how often each occurs, in rising order."""
    return np.cumsum(counts) - (counts - 1) / 2
