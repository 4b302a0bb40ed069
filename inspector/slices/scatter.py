"""The slice of the scatter view: one pair of quantities, in one layer or in all of them."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from engine.core.events import QUANTITIES
from engine.trace.trace import Trace
from inspector.slices.fields import Fields, SliceError
from inspector.slices.message import Cut
from inspector.views import drift as view
from inspector.views.drift import check


def scatter(trace: Trace, fields: Fields) -> Cut:
    """Counts and correlations of `x` against `y`, one of scatter.PAIRS, in a `layer` or in all.

    Without `layer`, the steps of `counted_steps` are counted, and `stats` and `rows` also have each
    layer for itself: float32 [L + 1, 3] and int32 [L + 1], otherwise [3] and []. `counts` are int32
    [BINS, BINS]. The fact `every` is the distance of the steps counted.
    """
    pair = fields.choice("x", QUANTITIES), fields.choice("y", QUANTITIES)
    if pair not in view.PAIRS:
        known = ", ".join(f"{x} and {y}" for x, y in view.PAIRS)
        raise SliceError("y", f"this pair is not compared; choose from {known}")
    check(trace)
    if fields.has("layer"):
        joint = view.joint_counts(trace, *pair, fields.whole("layer", 0, trace.layers))
        apart = view.recorded_every(trace)
        return _found(view.binned(joint), view.correlations(joint), joint.sum(), apart)
    steps, every = view.counted_steps(trace)
    counts, stats, rows = view.of_pair(trace, *pair, steps)
    return _found(counts.sum(0), stats, rows, every)


def _found(counts: np.ndarray, stats: ArrayLike, rows: ArrayLike, every: int) -> Cut:
    """The slice; `every` is the distance of the steps that were counted."""
    arrays = {
        "counts": counts.astype(np.int32),
        "stats": np.asarray(stats, np.float32),
        "rows": np.asarray(rows, np.int32),
    }
    return Cut(arrays, {"every": every})
