"""Similarity: cosine of K and V between any two recorded steps, by layer and position group."""

from __future__ import annotations

from typing import Any

from engine.trace.trace import Trace
from inspector.page_data.packing import packed


def similarity(trace: Trace) -> dict[str, Any]:
    """The comparison of steps of a run recorded at level `layers`.

    Compare figure 3 of Fast-dLLM and figure 4 of DARE. Returns a document with:

    - `codes` uint8 [X (X + 1) / 2, 2, L, G]: drift codes of 1 - mean cosine of K and of V, for the
      lower triangle of pairs of steps, by rows;
    - `steps` [X]: the compared steps;
    - `groups` [G, 2]: the range of positions [lo, hi) of each group.

    Raises ValueError if no steps were compared.
    """
    arrays = trace.arrays()
    if not arrays["similarity"].size:
        raise ValueError(
            "No steps were compared in this run: press Record to run it again with the recorder "
            "on. A recording that was stopped, or without K and V, has no comparison."
        )
    return {
        "codes": packed(trace.cells("similarity")),
        "steps": packed(arrays["similarity_step"]),
        "groups": packed(arrays["similarity_group"]),
    }
