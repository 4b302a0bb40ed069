"""Conversion of events to the arrays of a trace, and of token bytes to arrays and back."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from engine.core.events import (
    GUIDED,
    KINDS,
    GuidedStep,
    ProbeStep,
    RecordedCells,
    Recording,
    Similarity,
    StepEvent,
)
from engine.trace.schema import SCHEMA

VERDICTS = {  # arrays and the fields of Verdicts that they hold
    "draft_position": "positions", "draft_id": "ids", "draft_end": "ends", "draft_p_f": "p_f",
    "draft_p_g": "p_g", "draft_ok": "ok", "draft_kl": "kl", "guider_id": "guider_ids",
    "guider_end": "guider_ends", "guider_p": "guider_p", "guider_ok": "guider_ok",
    "guider_rank": "guider_rank", "guider_top": "top_ids", "guider_top_p": "top_p",
}  # fmt: skip

PROPOSALS = {  # arrays and the fields of Proposals that they hold
    "proposal_id": "ids", "proposal_confidence": "confidence", "proposal_score": "score",
    "proposal_entropy": "entropy", "proposal_order": "order",
}  # fmt: skip


def of_step(event: StepEvent, probes: int) -> dict[str, np.ndarray]:
    """The rows that a step adds to each array; `probes` is the number of probed steps before it."""
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
        new |= _recording(event.recording, event.step)
        if event.recording.probe is not None:
            new |= _probed(event.recording.probe, event.step, probes)
    return new if event.guided is None else new | _guided_step(event.guided, event.step)


def of_cells(cells: RecordedCells) -> dict[str, np.ndarray]:
    """The arrays of the cells whose drifts are recorded."""
    new = {"recorded_layer": cells.layers, "recorded_quantity": cells.quantities}
    return new | {"recorded_position": cells.positions}


def of_similarity(found: Similarity) -> dict[str, np.ndarray]:
    """The arrays of the similarity of steps."""
    new = {"similarity": found.codes, "similarity_step": found.steps}
    return new | {"similarity_group": found.groups}


def of_pieces(prefix: str, pieces: Mapping[int, bytes]) -> dict[str, np.ndarray]:
    """The bytes of token ids as three arrays, whose names begin with `prefix`."""
    ids = sorted(pieces)
    data = [pieces[i] for i in ids]
    return {
        f"{prefix}piece_id": np.array(ids, np.int32),
        f"{prefix}piece_end": np.cumsum([len(b) for b in data], dtype=np.int32),
        f"{prefix}piece_bytes": np.frombuffer(b"".join(data), np.uint8),
    }


def to_pieces(prefix: str, arrays: Mapping[str, np.ndarray]) -> dict[int, bytes]:
    """The bytes of token ids, from the arrays of `of_pieces`."""
    ends = [0, *arrays[f"{prefix}piece_end"].tolist()]
    raw = arrays[f"{prefix}piece_bytes"].tobytes()
    spans = zip(arrays[f"{prefix}piece_id"].tolist(), ends, ends[1:], strict=False)
    return {i: raw[lo:hi] for i, lo, hi in spans}


def _recording(found: Recording, step: int) -> dict[str, np.ndarray]:
    new = {"plan": found.plan[None], "planned": found.planned[None]}
    new["candidate_step"] = np.full(len(found.positions), step, np.int32)
    new |= {"candidate_position": found.positions}
    new |= {"candidate_id": found.top_ids, "candidate_prob": found.top_probs}
    if found.proposals is not None:
        new |= {array: getattr(found.proposals, name) for array, name in PROPOSALS.items()}
    if found.drift is None:
        return new
    if found.expert_changes is not None:
        new["expert_changes"] = found.expert_changes[None]
    return new | {"drift": found.drift[None], "drift_step": np.array([step], np.int32)}


def _probed(found: ProbeStep, step: int, row: int) -> dict[str, np.ndarray]:
    new = {"probe_error": found.error[None], "probe_moved": found.moved[None]}
    new["probe_step"] = np.array([step], np.int32)
    if found.lens is not None:
        new |= {"lens_id": found.lens.ids[None], "lens_prob": found.lens.probs[None]}
        new |= {"lens_token_prob": found.lens.token_probs[None]}
    if found.expert_changes is not None:
        new["probe_expert_changes"] = found.expert_changes[None]
    new["probe_row"] = np.full(len(found.positions), row, np.int32)
    return new | {"probe_position": found.positions, "probe_tv": found.tv, "probe_top": found.top}


def without_guider(count: int) -> dict[str, np.ndarray]:
    """The guided rows of `count` steps that draft nothing: they compute rows of known tokens."""
    return {
        "guided_count": np.zeros((count, len(GUIDED)), np.int32),
        "guided_nll": np.full(count, np.nan, np.float32),
        "guided_ms": np.zeros((count, 2), np.float64),
        "guided_flops": np.zeros((count, 2), np.int64),
    }


def _guided_step(found: GuidedStep, step: int) -> dict[str, np.ndarray]:
    new: dict[str, np.ndarray] = {
        "guided_count": np.array([[getattr(found, name) for name in GUIDED]], np.int32),
        "guided_nll": np.array([found.nll], np.float32),
        "guided_ms": np.array([[found.ms, found.prefill_ms]], np.float64),
        "guided_flops": np.array([[found.flops, found.prefill_flops]], np.int64),
    }
    if found.verdicts is not None:
        new |= {array: getattr(found.verdicts, name) for array, name in VERDICTS.items()}
        new["draft_step"] = np.full(len(found.verdicts.ids), step, np.int32)
        new["guider_step"] = np.full(len(found.verdicts.guider_ids), step, np.int32)
    return new
