"""Columns: what an event adds to the arrays of a trace."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from engine.core.events import (
    GUIDED,
    KINDS,
    GuidedStep,
    Recording,
    ProbeStep,
    Similarity,
    StepEvent,
    Verdicts,
)
from engine.trace.schema import SCHEMA


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
        if event.recording.probe is not None:
            new |= _shadowed(event.recording.probe, event.step, probes)
    return new if event.guided is None else new | _guided(event.guided, event.step)


def of_similarity(found: Similarity) -> dict[str, np.ndarray]:
    """The arrays of what was gathered over a run."""
    return {
        "similarity": found.codes,
        "similarity_step": found.steps,
        "similarity_group": found.groups,
    }


def of_pieces(prefix: str, pieces: Mapping[int, bytes]) -> dict[str, np.ndarray]:
    """The three arrays, named with a prefix, of the bytes of token ids."""
    ids = sorted(pieces)
    data = [pieces[i] for i in ids]
    return {
        f"{prefix}piece_id": np.array(ids, np.int32),
        f"{prefix}piece_end": np.cumsum([len(b) for b in data], dtype=np.int32),
        f"{prefix}piece_bytes": np.frombuffer(b"".join(data), np.uint8),
    }


def to_pieces(prefix: str, arrays: Mapping[str, np.ndarray]) -> dict[int, bytes]:
    """The bytes of token ids again."""
    ends = [0, *arrays[f"{prefix}piece_end"].tolist()]
    raw = arrays[f"{prefix}piece_bytes"].tobytes()
    spans = zip(arrays[f"{prefix}piece_id"].tolist(), ends, ends[1:], strict=False)
    return {i: raw[lo:hi] for i, lo, hi in spans}


def _recorded(seen: Recording, step: int) -> dict[str, np.ndarray]:
    new = {"plan": seen.plan[None], "planned": seen.planned[None]}
    new["candidate_step"] = np.full(len(seen.positions), step, np.int32)
    new |= {"candidate_position": seen.positions}
    new |= {"candidate_id": seen.top_ids, "candidate_prob": seen.top_probs}
    return new if seen.drift is None else new | {"drift": seen.drift[None]}


def _shadowed(seen: ProbeStep, step: int, row: int) -> dict[str, np.ndarray]:
    return {
        "probe_step": np.array([step], np.int32),
        "probe_error": seen.error[None],
        "probe_moved": seen.moved[None],
        "probe_row": np.full(len(seen.positions), row, np.int32),
        "probe_position": seen.positions,
        "probe_tv": seen.tv,
        "probe_top": seen.top,
    }


def _guided(seen: GuidedStep, step: int) -> dict[str, np.ndarray]:
    new: dict[str, np.ndarray] = {
        "guided_count": np.array([[getattr(seen, name) for name in GUIDED]], np.int32),
        "guided_nll": np.array([seen.nll], np.float32),
        "guided_ms": np.array([[seen.ms, seen.prefill_ms]], np.float64),
        "guided_flops": np.array([[seen.flops, seen.prefill_flops]], np.int64),
    }
    return new if seen.verdicts is None else new | _judged(seen.verdicts, step)


def _judged(seen: Verdicts, step: int) -> dict[str, np.ndarray]:
    return {
        "draft_step": np.full(len(seen.ids), step, np.int32),
        "draft_position": seen.positions,
        "draft_id": seen.ids,
        "draft_end": seen.ends,
        "draft_p_f": seen.p_f,
        "draft_p_g": seen.p_g,
        "draft_ok": seen.ok,
        "draft_kl": seen.kl,
        "guider_step": np.full(len(seen.guider_ids), step, np.int32),
        "guider_id": seen.guider_ids,
        "guider_end": seen.guider_ends,
        "guider_p": seen.guider_p,
        "guider_ok": seen.guider_ok,
        "guider_rank": seen.guider_rank,
        "guider_top": seen.top_ids,
        "guider_top_p": seen.top_p,
    }
