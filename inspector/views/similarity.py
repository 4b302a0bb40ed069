"""Similarity: how alike K and V of any two recorded steps are, by layer and group of positions."""

from __future__ import annotations

from typing import Any

from engine.trace.trace import Trace
from inspector.page_data.packing import packed


def similarity(trace: Trace) -> dict[str, Any]:
    """The step by step comparison of level `layers` (Fast-dLLM, figure 3; DARE, figure 4).

    `codes` [X (X + 1) / 2, 2, L, G] uint8 are log codes of 1 - mean cosine over the lower triangle
    by rows, K and V; `steps` [X]; `groups` [G, 2], positions [lo, hi). ValueError where nothing
    was compared.
    """
    arrays = trace.arrays()
    if not arrays["similarity"].size:
        raise ValueError(
            "This run compared no steps: press Record to run it once more with the recorder on; "
            "a recording that was stopped holds none either."
        )
    return {
        "codes": packed(arrays["similarity"]),
        "steps": packed(arrays["similarity_step"]),
        "groups": packed(arrays["similarity_group"]),
    }
