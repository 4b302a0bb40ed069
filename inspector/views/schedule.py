"""Schedule: what each step recomputed in each region and layer, and what was planned."""

from __future__ import annotations

from typing import Any

import numpy as np

from engine.core.regions import REGIONS
from engine.trace.trace import Trace
from inspector.page_data.packing import pack_arrays
from inspector.page_data.row_counts import count_bits, popcount, step_windows


def schedule(trace: Trace) -> dict[str, Any]:
    """The arrays of `plans`, packed for the page, and `regions`, the names of the regions."""
    return {"regions": list(REGIONS)} | pack_arrays(plans(trace))


def plans(trace: Trace) -> dict[str, np.ndarray]:
    """The plans of a run recorded at level `steps` or above.

    Returns these arrays:

    - `planned`, `done` [S, 3]: codes into `events.KINDS` by region; `planned` is empty if the
      trace has none; `differs` [n, 2]: the steps and regions where the two differ;
    - `portion` [S, 3]: share of a region's token-layers that was recomputed, NaN if it is empty;
    - `share` [S, L, 4]: share of a layer's rows that was recomputed, by site;
    - `running` [S]: token-layers recomputed up to each step, over all sites and guidance branches,
      as a percentage of those of all positions. Commit calls add work and count as no step, because
      a run without a cache makes none.

    Raises ValueError if the run has no plans.
    """
    check(trace)
    return kinds(trace) | {
        "portion": portions(trace),
        "share": share(trace),
        "running": running(trace.arrays()["recomputed"], trace.commit_calls),
    }


def check(trace: Trace) -> None:
    """Raise ValueError if the trace has no plans."""
    if not len(trace.arrays()["plan"]):
        raise ValueError(
            "This run has no recorded plans: press Record to see what each step recomputed."
        )


def kinds(trace: Trace) -> dict[str, np.ndarray]:
    """The arrays `planned`, `done` and `differs` of `schedule`."""
    planned, done = trace.arrays()["planned"], trace.recomputed_kinds()
    unlike = planned != done if len(planned) else np.zeros(done.shape, bool)
    return {"planned": planned, "done": done, "differs": np.argwhere(unlike).astype(np.int32)}


def portions(trace: Trace) -> np.ndarray:
    """The array `portion` of `plans`, computed for a few steps at a time to save memory."""
    plan = trace.arrays()["plan"]
    steps = np.arange(len(plan))
    return np.concatenate(
        [portion(plan[part], trace.region_rows(steps[part])) for part in step_windows(len(plan))]
    )


def rows_done(trace: Trace, low: int, high: int) -> np.ndarray:
    """Number of the rows [low, high) that were recomputed, int32 [S, L, 4]."""
    return count_bits(trace.arrays()["plan"], low, high)


def share(trace: Trace) -> np.ndarray:
    """Share of the rows of a layer that were recomputed, float32 [S, L, 4]."""
    length = len(trace.arrays()["canvas"])
    return (rows_done(trace, 0, length) / length).astype(np.float32)


def portion(plan: np.ndarray, places: np.ndarray) -> np.ndarray:
    """Share of each region that was recomputed, float32 [S, 3]; NaN for an empty region.

    Args:
        plan: bits of the rows recomputed, uint8 [S, L, 4, T / 8].
        places: whether a position is in a region, bool [S, 3, T].
    """
    masks = np.packbits(places, axis=-1)
    sums = [[popcount((rows & mask).reshape(-1)) for mask in own]
            for rows, own in zip(plan, masks, strict=True)]  # fmt: skip
    most = places.sum(-1) * plan.shape[1] * plan.shape[2]
    whole = np.reshape(np.array(sums, np.float64), most.shape)
    return np.where(most > 0, whole / np.maximum(most, 1), np.nan).astype(np.float32)


def running(recomputed: np.ndarray, commit_calls: np.ndarray) -> np.ndarray:
    """The array `running` of `plans`, float32.

    Args:
        recomputed: share of the token-layers that a step recomputed, [S].
        commit_calls: whether a step is a commit call, bool [S].
    """
    counts = np.maximum(np.cumsum(~commit_calls), 1)
    return (100 * np.cumsum(recomputed) / counts).astype(np.float32)
