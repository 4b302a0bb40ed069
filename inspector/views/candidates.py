"""Candidates: what each step could have committed, with the tokens that the model preferred."""

from __future__ import annotations

from typing import Any

import numpy as np

from engine.trace.trace import Trace
from inspector.page_data.packing import packed
from inspector.page_data.tokens import pieces


def candidates(trace: Trace) -> dict[str, Any]:
    """Candidates of a run recorded at level `steps` or above; ValueError where none were kept.

    `step`, `position` [N] name them, `ids` and `probs` [N, K] are their best tokens, best first;
    `chosen` [N] is the rank of the token that was committed there in that step, 255 where it was
    none of them or nothing was; `pieces` are the texts of all these ids.
    """
    arrays = trace.arrays()
    if not len(arrays["plan"]):
        raise ValueError("This run kept no candidates: press Record to see them.")
    step, position = arrays["candidate_step"], arrays["candidate_position"]
    committed = trace.canvas_at(trace.steps)[position]
    here = trace.step_map()[position] == step
    match = (arrays["candidate_id"] == committed[:, None]) & here[:, None]
    rank = match.argmax(1) if match.shape[1] else np.zeros(len(step), np.int64)
    chosen = np.where(match.any(1), rank, 255).astype(np.uint8)
    ids = np.unique(arrays["candidate_id"]).tolist()
    return {
        "step": packed(step),
        "position": packed(position),
        "ids": packed(arrays["candidate_id"]),
        "probs": packed(arrays["candidate_prob"]),
        "chosen": packed(chosen),
        "pieces": pieces(trace.pieces, ids),
    }
