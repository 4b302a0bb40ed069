"""The arrays of a trace: dtype and shape of each, and the checks on arrays that come in."""

from __future__ import annotations

import numpy as np

from engine.events import KINDS, PARTS, SITES

SCHEMA: dict[str, tuple[str, tuple[str, ...]]] = {
    "canvas": ("int32", ("T",)),
    "prompt_mask": ("bool", ("T",)),
    "fixed_mask": ("bool", ("T",)),
    "block": ("int32", ("S",)),
    "block_step": ("int32", ("S",)),
    "kind": ("uint8", ("S",)),
    "rows": ("int32", ("S",)),
    "forwards": ("int32", ("S",)),
    "masks_left": ("int32", ("S",)),
    "forward_ms": ("float64", ("S",)),
    "decide_ms": ("float64", ("S",)),
    "flops": ("int64", ("S", "5")),
    "recomputed": ("float64", ("S",)),
    "commit_step": ("int32", ("C",)),
    "commit_position": ("int32", ("C",)),
    "commit_id": ("int32", ("C",)),
    "commit_confidence": ("float32", ("C",)),
    "piece_id": ("int32", ("P",)),
    "piece_end": ("int32", ("P",)),
    "piece_bytes": ("uint8", ("Z",)),
    "plan": ("uint8", ("R", "L", "4", "W")),
    "candidate_step": ("int32", ("N",)),
    "candidate_position": ("int32", ("N",)),
    "candidate_id": ("int32", ("N", "K")),
    "candidate_prob": ("float32", ("N", "K")),
}
FIXED = {"4": len(SITES), "5": len(PARTS)}
MAX_POSITIONS = 16_384
MAX_ID = 2**24


def empty_arrays() -> dict[str, np.ndarray]:
    """Arrays of a run that has recorded nothing."""
    shapes = {name: [FIXED.get(s, 0) for s in shape] for name, (_, shape) in SCHEMA.items()}
    return {name: np.zeros(shape, SCHEMA[name][0]) for name, shape in shapes.items()}


def check_arrays(arrays: dict[str, np.ndarray], vocab: int | None) -> dict[str, np.ndarray]:
    """The arrays, if names, types, shapes and ranges are those of a run; else ValueError."""
    if set(arrays) != set(SCHEMA):
        odd = sorted(set(arrays) ^ set(SCHEMA))[0]
        raise ValueError(f"trace: field {odd!r} is missing or unknown")
    sizes = dict(FIXED)
    for name, (dtype, shape) in SCHEMA.items():
        array = arrays[name]
        if array.dtype != np.dtype(dtype) or array.ndim != len(shape):
            raise ValueError(f"trace: {name} should be {dtype} of {len(shape)} dimensions")
        for symbol, size in zip(shape, array.shape, strict=True):
            if sizes.setdefault(symbol, size) != size:
                raise ValueError(f"trace: the length of {name} does not fit the other fields")
    _check_ranges(arrays, sizes, vocab)
    return arrays


def _check_ranges(arrays: dict[str, np.ndarray], sizes: dict[str, int], vocab: int | None) -> None:
    steps, positions = sizes["S"], sizes["T"]
    if not 0 < positions <= MAX_POSITIONS:
        raise ValueError(f"trace: between 1 and {MAX_POSITIONS} positions expected")
    if sizes["R"] not in (0, steps) or (sizes["R"] and sizes["W"] != -(-positions // 8)):
        raise ValueError("trace: plan does not fit the steps and positions")
    if type(vocab) is not int or not 0 < vocab <= MAX_ID:
        raise ValueError("trace: meta.model.vocab_size is missing")
    bounds = {
        "canvas": vocab, "commit_id": vocab, "candidate_id": vocab, "piece_id": vocab,
        "commit_position": positions, "candidate_position": positions,
        "commit_step": max(steps, 1), "candidate_step": max(steps, 1), "kind": len(KINDS),
        "rows": positions + 1, "forwards": 1_000, "masks_left": positions + 1,
        "block": positions, "block_step": max(steps, 1), "piece_end": sizes["Z"] + 1,
    }  # fmt: skip
    for name, bound in bounds.items():
        array = arrays[name]
        if array.size and not (array.min() >= 0 and array.max() < bound):
            raise ValueError(f"trace: {name} holds a value outside 0 to {bound - 1}")
    if (arrays["flops"] < 0).any():
        raise ValueError("trace: flops holds a negative count")
    if not ((arrays["recomputed"] >= 0) & (arrays["recomputed"] <= 1)).all():
        raise ValueError("trace: recomputed holds a share outside 0 to 1")
    for name in ("forward_ms", "decide_ms"):
        if not (np.isfinite(arrays[name]) & (arrays[name] >= 0)).all():
            raise ValueError(f"trace: {name} holds a time that is not finite and positive")
    if (np.diff(arrays["commit_step"]) < 0).any() or (np.diff(arrays["piece_end"]) < 0).any():
        raise ValueError("trace: commit_step and piece_end must not decrease")
    if len(np.unique(arrays["commit_position"])) < sizes["C"]:
        raise ValueError("trace: a position is committed twice")
