"""Similarity: cosine of K and V between any two recorded steps, by layer and position group."""

from __future__ import annotations

from typing import Any

import numpy as np

from engine.core.drift_codes import DRIFTS
from engine.trace.cells import EVERY
from engine.trace.trace import Trace
from inspector.page_data.packing import pack_arrays
from inspector.views.error import nan_means


def similarity(trace: Trace) -> dict[str, Any]:
    """The arrays of `comparison`, packed for the page."""
    return pack_arrays(comparison(trace))


def comparison(trace: Trace) -> dict[str, np.ndarray]:
    """The comparison of steps of a run recorded at level `layers`.

    Compare figure 3 of Fast-dLLM and figure 4 of DARE. Returns these arrays:

    - `codes` uint8 [X (X + 1) / 2, 2, L, G]: drift codes of 1 - mean cosine of K and of V, for the
      lower triangle of pairs of steps, by rows; 255 in layers that were not recorded;
    - `steps` [X]: the compared steps;
    - `groups` [G, 2]: the range of positions [lo, hi) of each group.

    Raises ValueError if no steps were compared.
    """
    check(trace)
    return {"codes": trace.cells("similarity")} | compared_steps(trace)


def check(trace: Trace) -> None:
    """Raise ValueError if no steps were compared."""
    if not trace.arrays()["similarity"].size:
        raise ValueError(
            "No steps were compared in this run: press Record to run it again with the recorder "
            "on. A recording that was stopped, or without K and V, has no comparison."
        )


def compared(trace: Trace, kind: int, layer: int, pairs: slice = EVERY) -> np.ndarray:
    """The codes of K (`kind` 0) or V (1) in a layer, uint8 [pairs, G].

    `pairs` chooses rows of `codes` of `comparison`.
    """
    layers, kinds = slice(layer, layer + 1), slice(kind, kind + 1)
    return trace.cells("similarity", pairs, layers, kinds)[:, 0, 0]


def compared_steps(trace: Trace) -> dict[str, np.ndarray]:
    """The arrays `steps` and `groups` of `similarity`."""
    arrays = trace.arrays()
    return {"steps": arrays["similarity_step"], "groups": arrays["similarity_group"]}


def step_matrix(codes: np.ndarray, steps: int) -> np.ndarray:
    """Drift codes of each step against each step, uint8 [X, X].

    `codes` [X (X + 1) / 2] is the lower triangle by rows, `steps` is X.
    """
    high, low = np.tril_indices(steps)
    matrix = np.empty((steps, steps), np.uint8)
    matrix[high, low] = matrix[low, high] = codes
    return matrix


def changes(trace: Trace) -> np.ndarray:
    """The `change_per_step` of K and V by layer and group, float32 [2, L, G].

    It is NaN in layers that were not recorded. Raises ValueError if no steps were compared.
    """
    check(trace)
    arrays = trace.arrays()
    codes, layers = arrays["similarity"], arrays["recorded_layer"]  # not all layers: these are few
    found = np.full((2, trace.layers, codes.shape[-1]), np.nan, np.float32)
    found[:, layers] = change_per_step(codes, len(arrays["similarity_step"]))
    return found


def change_per_step(codes: np.ndarray, steps: int) -> np.ndarray:
    """Mean of 1 - cosine to the previous compared step, float32 [...]; NaN if none is known.

    Pairs in which a row has no value, as in a later block with block-causal attention, are left
    out.

    `codes` [X (X + 1) / 2, ...] is the lower triangle by rows, `steps` is X.
    """
    later = np.arange(1, steps)
    pairs = DRIFTS[codes[later * (later + 1) // 2 + later - 1]]
    return nan_means(np.moveaxis(pairs, 0, -1))
