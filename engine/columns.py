"""Columns: what an event adds to the arrays of a trace."""

from __future__ import annotations

import numpy as np

from engine.events import KINDS, Recording, ShadowStep, Similarity, StepEvent
from engine.schema import SCHEMA


def of_step(event: StepEvent, probes: int) -> dict[str, np.ndarray]:
    """The rows that a step adds to each array; `probes` counts the shadowed steps before it."""
    n = len(event.positions)
    row = {
        "block": event.block, "block_step": event.block_step, "kind": KINDS.index(event.kind),
        "rows": event.rows, "forwards": event.forwards, "masks_left": event.masks_left,
        "forward_ms": event.forward_ms, "decide_ms": event.decide_ms,
        "flops": event.flops, "recomputed": event.recomputed,
    }  # fmt: skip
    new = {name: np.array([value], SCHEMA[name][0]) for name, value in row.items()}
    new |= {"commit_step": np.full(n, event.step, np.int32), "commit_id": event.ids}
    new |= {"commit_position": event.positions, "commit_confidence": event.confidence}
    if event.recording is not None:
        new |= _recorded(event.recording, event.step)
        if event.recording.shadow is not None:
            new |= _shadowed(event.recording.shadow, event.step, probes)
    return new


def of_similarity(found: Similarity) -> dict[str, np.ndarray]:
    """The arrays of what was gathered over a run."""
    return {
        "similarity": found.codes,
        "similarity_step": found.steps,
        "similarity_group": found.groups,
    }


def _recorded(seen: Recording, step: int) -> dict[str, np.ndarray]:
    new = {"plan": seen.plan[None], "planned": seen.planned[None]}
    new["candidate_step"] = np.full(len(seen.positions), step, np.int32)
    new |= {"candidate_position": seen.positions}
    new |= {"candidate_id": seen.top_ids, "candidate_prob": seen.top_probs}
    return new if seen.drift is None else new | {"drift": seen.drift[None]}


def _shadowed(seen: ShadowStep, step: int, row: int) -> dict[str, np.ndarray]:
    return {
        "probe_step": np.array([step], np.int32),
        "probe_error": seen.error[None],
        "probe_moved": seen.moved[None],
        "probe_row": np.full(len(seen.positions), row, np.int32),
        "probe_position": seen.positions,
        "probe_tv": seen.tv,
        "probe_top": seen.top,
    }
