"""Candidates: the positions that each step could have committed, with their most likely tokens."""

from __future__ import annotations

from typing import Any

import numpy as np

from engine.core.events import PROBABILITY_SCALE
from engine.trace.trace import Trace
from inspector.page_data.packing import pack_arrays
from inspector.page_data.tokens import pieces

NO_CANDIDATE = 255


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
    return pack_arrays(listed(trace, slice(None)))


def check(trace: Trace) -> None:
    """Raise ValueError if the trace has no candidates."""
    if not len(trace.arrays()["plan"]):
        raise ValueError("This run has no recorded candidates: press Record to see them.")


def listed(trace: Trace, part: Any) -> dict[str, Any]:
    """The document of `candidates` with arrays, of those candidates that the index `part` takes.

    Raises ValueError if the run has no candidates.
    """
    check(trace)
    arrays = trace.arrays()
    step, position = arrays["candidate_step"][part], arrays["candidate_position"][part]
    ids = arrays["candidate_id"][part]
    committed = trace.canvas_at(trace.steps)[position]
    here = trace.step_map()[position] == step
    match = (ids == committed[:, None]) & here[:, None]
    rank = match.argmax(1) if match.shape[1] else np.zeros(len(step), np.int64)
    return {
        "step": step,
        "position": position,
        "ids": ids,
        "probs": arrays["candidate_prob"][part],
        "chosen": np.where(match.any(1), rank, 255).astype(np.uint8),
        "pieces": pieces(trace.pieces, np.unique(ids).tolist()),
    }


def best_probabilities(trace: Trace, steps: slice, positions: slice) -> np.ndarray:
    """Probability of the most likely token by step and position, as codes uint8.

    A code is the probability times PROBABILITY_SCALE, NO_CANDIDATE for a position that was no
    candidate. `steps` and `positions` are ranges with a start and a stop. Raises ValueError if the
    run has no candidates.
    """
    check(trace)
    arrays = trace.arrays()
    step, position = arrays["candidate_step"], arrays["candidate_position"]
    best = arrays["candidate_prob"][:, :1]
    shape = (steps.stop - steps.start, positions.stop - positions.start)
    codes = np.full(shape, NO_CANDIDATE, np.uint8)
    inside = (step >= steps.start) & (step < steps.stop)
    inside &= (position >= positions.start) & (position < positions.stop)
    if best.size:
        share = np.clip(np.nan_to_num(best[inside, 0]), 0, 1)
        place = step[inside] - steps.start, position[inside] - positions.start
        codes[place] = np.round(share * PROBABILITY_SCALE)
    return codes
