"""Candidates: the positions that each step could have committed, with their most likely tokens."""

from __future__ import annotations

from typing import Any

import numpy as np

from engine.trace.trace import Trace
from inspector.page_data.packing import packed
from inspector.page_data.tokens import pieces


def candidates(trace: Trace) -> dict[str, Any]:
    """The candidates of a run recorded at level `steps` or above.

    Returns a document with:

    - `step`, `position` [N]: step and position of each candidate;
    - `ids`, `probs` [N, K]: its most likely tokens and their probabilities, in falling order;
    - `chosen` [N]: the rank of the token that this step committed there, 255 if it committed none
      or one that is not among the K;
    - `pieces`: the texts of all these ids.

    Raises ValueError if the run has no candidates.
    """
    arrays = trace.arrays()
    if not len(arrays["plan"]):
        raise ValueError("This run has no recorded candidates: press Record to see them.")
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
