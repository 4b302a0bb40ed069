"""The arrays of a trace, schema version 7, and the check of arrays read from a file.

Dimensions: S steps, T positions, C commits, P pieces of Z bytes, L layers, N candidates of K
tokens; D steps with the drifts of I layers, O quantities (F of them sites) and B positions; X
steps in Y = X (X + 1) / 2 pairs (j <= i), G groups of positions; E probed steps with M rows of
logits, and `lens` probed steps with a logit lens of `answer` positions; U guided steps, J drafted
tokens, H guider tokens, Q guider pieces of V bytes. R, A and U are S, or 0 if not recorded; `lens`
is E or 0, and `proposals` is N or 0; with experts `changed` is D and `probed` E, else both are 0. W
is ceil(T / 8). Arrays that were not recorded are empty. Codes are those of
engine.core.drift_codes; the events describe the values.
"""

from __future__ import annotations

import numpy as np

from engine.config.spec import MAX_PROBES
from engine.core.events import GUIDED, KINDS, PARTS, QUANTITIES, SITES
from engine.core.regions import REGIONS

SCHEMA: dict[str, tuple[str, tuple[str, ...]]] = {
    "canvas": ("int32", ("T",)),  # token ids before the first step
    "prompt_mask": ("bool", ("T",)),
    "fixed_mask": ("bool", ("T",)),  # given answer tokens
    "block": ("int32", ("S",)),  # index
    "block_step": ("int32", ("S",)),  # a branch continues its parent's schedule
    "kind": ("uint8", ("S",)),  # index into events.KINDS
    "rows": ("int32", ("S",)),
    "forwards": ("int32", ("S",)),
    "masks_left": ("int32", ("S",)),
    "forward_ms": ("float64", ("S",)),  # milliseconds
    "decide_ms": ("float64", ("S",)),  # milliseconds
    "flops": ("int64", ("S", "parts")),  # by events.PARTS, of all sequences and guidance branches
    "recomputed": ("float64", ("S",)),  # share of token-layers
    "commit_step": ("int32", ("C",)),
    "commit_position": ("int32", ("C",)),
    "commit_id": ("int32", ("C",)),
    "commit_confidence": ("float32", ("C",)),  # NaN if filled in
    "piece_id": ("int32", ("P",)),
    "piece_end": ("int32", ("P",)),  # end offset in piece_bytes
    "piece_bytes": ("uint8", ("Z",)),
    "plan": ("uint8", ("R", "L", "sites", "W")),  # bits of recomputed rows
    "candidate_step": ("int32", ("N",)),
    "candidate_position": ("int32", ("N",)),
    "candidate_id": ("int32", ("N", "K")),  # best first
    "candidate_prob": ("float32", ("N", "K")),
    "planned": ("uint8", ("A", "regions")),  # events.KINDS of prompt, block and rest
    "drift": ("uint8", ("D", "I", "O", "B")),  # code: new against last computed value
    "similarity": ("uint8", ("Y", "2", "I", "G")),  # code of 1 - mean cosine of two steps' K, V
    "similarity_step": ("int32", ("X",)),
    "similarity_group": ("int32", ("G", "2")),  # positions [lo, hi)
    "probe_step": ("int32", ("E",)),
    "probe_error": ("uint8", ("E", "I", "F", "B")),  # code: value used against exact one
    "probe_moved": ("uint8", ("E", "I", "F", "B")),  # code: last value against exact one
    "probe_row": ("int32", ("M",)),  # index into probe_step
    "probe_position": ("int32", ("M",)),
    "probe_tv": ("float32", ("M",)),  # total variation between both predictions
    "probe_top": ("int32", ("M", "2")),  # best id of the run, and of the exact forward
    "guided_count": ("int32", ("U", "guided")),  # events.GUIDED
    "guided_nll": ("float32", ("U",)),  # nats; NaN: none judged
    "guided_ms": ("float64", ("U", "2")),  # total, and the prefill of it
    "guided_flops": ("int64", ("U", "2")),  # total, and the prefill of it
    "draft_step": ("int32", ("J",)),
    "draft_position": ("int32", ("J",)),
    "draft_id": ("int32", ("J",)),
    "draft_end": ("int32", ("J",)),  # end offset in the bytes of the draft's text
    "draft_p_f": ("float32", ("J",)),  # by the drafting model
    "draft_p_g": ("float32", ("J",)),  # by the guider; NaN: not computed
    "draft_ok": ("bool", ("J",)),  # accepted by itself
    "draft_kl": ("float32", ("J",)),  # KL(p_f, p_g) in nats; NaN if the vocabularies differ
    "guider_step": ("int32", ("H",)),
    "guider_id": ("int32", ("H",)),
    "guider_end": ("int32", ("H",)),  # in the bytes of draft_end
    "guider_p": ("float32", ("H",)),
    "guider_ok": ("bool", ("H",)),
    "guider_rank": ("uint8", ("H",)),  # 0 first choice, 5 sixth or later
    "guider_top": ("int32", ("H",)),  # first choice
    "guider_top_p": ("float32", ("H",)),
    "guider_piece_id": ("int32", ("Q",)),
    "guider_piece_end": ("int32", ("Q",)),
    "guider_piece_bytes": ("uint8", ("V",)),
    "drift_step": ("int32", ("D",)),
    "recorded_layer": ("int32", ("I",)),  # from 0, as the other three
    "recorded_quantity": ("int32", ("O",)),  # index into events.QUANTITIES
    "recorded_position": ("int32", ("B",)),
    "lens_position": ("int32", ("answer",)),
    "lens_id": ("int32", ("lens", "2", "L", "answer")),  # best id after each layer; see LogitLens
    "lens_prob": ("uint8", ("lens", "2", "L", "answer")),  # code of its probability
    "lens_token_prob": ("uint8", ("lens", "2", "L", "answer")),  # of the exact pass's last best id
    "proposal_id": ("int32", ("proposals",)),  # of each candidate: what could be committed
    "proposal_confidence": ("float32", ("proposals",)),  # as the unmasker read it
    "proposal_score": ("float64", ("proposals",)),  # what the unmasker ranked by
    "proposal_entropy": ("float32", ("proposals",)),  # sum of p log p of the model's distribution
    "proposal_order": ("int32", ("proposals",)),  # place in a planned order; -1: not planned
    # Experts of a row that are others than those of its last feed-forward output; 255: not known.
    "expert_changes": ("uint8", ("changed", "I", "B")),  # of each step of drift_step
    "probe_expert_changes": ("uint8", ("probed", "I", "B")),  # of the exact forward
}
_NAMES = tuple(SCHEMA)
ADDED_AFTER = {  # fields added after a version
    1: _NAMES[_NAMES.index("planned") :],
    2: _NAMES[_NAMES.index("guided_count") :],
    3: _NAMES[_NAMES.index("drift_step") :],
    4: _NAMES[_NAMES.index("lens_position") :],
    5: _NAMES[_NAMES.index("proposal_id") :],
    6: _NAMES[_NAMES.index("expert_changes") :],
}
OLD_PARTS = 5  # number of events.PARTS up to version 2
FIXED = {
    "sites": len(SITES), "parts": len(PARTS), "regions": len(REGIONS), "2": 2,
    "guided": len(GUIDED),
}  # fmt: skip
RISING = (
    "similarity_step", "probe_step", "drift_step", "recorded_layer", "recorded_quantity",
    "recorded_position", "lens_position",
)  # fmt: skip
RANKS = 6  # guider_rank: 0 is the first choice, 5 the sixth or a later one
MAX_POSITIONS = 16_384
MAX_ID = 2**24
MAX_LAYERS = 1_024
MAX_STEPS = 4_096
MAX_MS = 1e12  # of a step, 30 years: the times of all steps add up to a number
MAX_PIECES = 2**20  # tokens whose bytes a trace holds; in memory each has 113 bytes more
MAX_PIECE_BYTES = 8_000_000  # of all tokens: bytes that are no text take four times as many as JSON
MAX_COMPARED, MAX_GROUPS = 256, 6  # as engine.record.sketches keeps: all pairs in all layers 0.4 GB


def empty_arrays() -> dict[str, np.ndarray]:
    """The arrays of a run that has recorded nothing."""
    shapes = {name: [FIXED.get(s, 0) for s in shape] for name, (_, shape) in SCHEMA.items()}
    return {name: np.zeros(shape, SCHEMA[name][0]) for name, shape in shapes.items()}


def check_arrays(arrays: dict[str, np.ndarray], vocab: int | None) -> dict[str, np.ndarray]:
    """Return the arrays of a trace; ValueError for a wrong name, dtype, shape or range.

    Arrays without rows are replaced by those of `empty_arrays`.
    """
    if set(arrays) != set(SCHEMA):
        wrong = sorted(set(arrays) ^ set(SCHEMA))[0]
        raise ValueError(f"trace: field {wrong!r} is missing or unknown")
    sizes, checked = dict(FIXED), empty_arrays()
    for name, (dtype, shape) in SCHEMA.items():
        array = arrays[name]
        if array.dtype != np.dtype(dtype) or array.ndim != len(shape):
            raise ValueError(f"trace: {name} should be {dtype} of {len(shape)} dimensions")
        bound = shape if len(array) else shape[:1]
        for symbol, size in zip(bound, array.shape, strict=False):
            if sizes.setdefault(symbol, size) != size:
                raise ValueError(f"trace: the length of {name} does not fit the other fields")
        if array.dtype == bool and (array.view(np.uint8) > 1).any():
            raise ValueError(f"trace: {name} holds a byte that is neither 0 nor 1")
        checked[name] = array if len(array) else checked[name]
    sizes.setdefault("L", MAX_LAYERS)
    _check_sizes(sizes)
    for symbol, whole, name in (("changed", "D", ""), ("probed", "E", "probe_")):
        if sizes[symbol] not in (0, sizes[whole]):
            raise ValueError(f"trace: {name}expert_changes does not fit the other fields")
    _check_ranges(checked, sizes, vocab)
    _check_order(checked)
    if sizes["E"] and sizes["F"] != (checked["recorded_quantity"] < len(SITES)).sum():
        raise ValueError("trace: probe_error does not fit recorded_quantity")
    return checked


def _check_sizes(sizes: dict[str, int]) -> None:
    steps, positions = sizes["S"], sizes["T"]
    if not 0 < positions <= MAX_POSITIONS:
        raise ValueError(f"trace: between 1 and {MAX_POSITIONS} positions expected")
    limits = (
        ("L", "layers", MAX_LAYERS), ("S", "steps", MAX_STEPS),
        ("P", "tokens in piece_id", MAX_PIECES), ("Q", "tokens in guider_piece_id", MAX_PIECES),
        ("Z", "bytes in piece_bytes", MAX_PIECE_BYTES),
        ("V", "bytes in guider_piece_bytes", MAX_PIECE_BYTES),
        ("E", "probed steps", MAX_PROBES), ("C", "commits, one a position,", positions),
        ("X", "steps in similarity_step", MAX_COMPARED),
        ("G", "groups in similarity_group", MAX_GROUPS),
    )  # fmt: skip
    for symbol, name, most in limits:
        if sizes[symbol] > most:
            raise ValueError(f"trace: at most {most} {name} expected")
    per_step = (("R", "plan"), ("A", "planned"), ("U", "guided_count"))
    for symbol, name in per_step:
        if sizes[symbol] not in (0, steps):
            raise ValueError(f"trace: {name} does not fit the steps and positions")
    if sizes["proposals"] not in (0, sizes["N"]):
        raise ValueError("trace: proposal_id does not fit the candidates")
    if not sizes["R"] and (sizes["D"] or sizes["E"]):
        raise ValueError("trace: drift and probes need the plan of the run; add it or drop them")
    if sizes["R"] and sizes["W"] != -(-positions // 8):
        raise ValueError("trace: plan does not fit the steps and positions")
    if sizes["D"] and not (sizes["I"] and sizes["O"] and sizes["B"]):
        raise ValueError("trace: drift does not fit the recorded layers, quantities and positions")
    if sizes["lens"] not in (0, sizes["E"]) or bool(sizes["lens"]) != bool(sizes["answer"]):
        raise ValueError("trace: lens_id does not fit probe_step and lens_position")
    if sizes["Y"] != sizes["X"] * (sizes["X"] + 1) // 2:
        raise ValueError("trace: similarity does not fit similarity_step")


def _check_ranges(arrays: dict[str, np.ndarray], sizes: dict[str, int], vocab: int | None) -> None:
    steps, positions = sizes["S"], sizes["T"]
    if type(vocab) is not int or not 0 < vocab <= MAX_ID:
        raise ValueError("trace: meta.model.vocab_size is missing")
    bounds = {
        "canvas": vocab, "commit_id": vocab, "candidate_id": vocab, "piece_id": vocab,
        "probe_top": vocab, "commit_position": positions, "candidate_position": positions,
        "probe_position": positions, "similarity_group": positions + 1, "commit_step": steps,
        "candidate_step": steps, "similarity_step": steps, "probe_step": steps,
        "probe_row": sizes["E"], "kind": len(KINDS), "planned": len(KINDS),
        "rows": positions + 1, "forwards": 1_000, "masks_left": positions + 1,
        "block": positions, "block_step": max(steps, positions), "piece_end": sizes["Z"] + 1,
        "guided_count": MAX_ID, "draft_step": steps, "draft_position": positions,
        "draft_id": vocab, "draft_end": MAX_ID, "guider_step": steps, "guider_id": MAX_ID,
        "guider_end": MAX_ID, "guider_rank": RANKS, "guider_top": MAX_ID,
        "drift_step": steps, "recorded_layer": sizes["L"],
        "recorded_quantity": len(QUANTITIES), "recorded_position": positions,
        "lens_position": positions, "lens_id": vocab,
        "guider_piece_id": MAX_ID, "guider_piece_end": sizes["V"] + 1,
        "proposal_id": vocab,
    }  # fmt: skip
    for name, bound in bounds.items():
        array = arrays[name]
        if array.size and not (array.min() >= 0 and array.max() < bound):
            raise ValueError(f"trace: {name} holds a value outside 0 to {bound - 1}")
    _check_amounts(arrays)


def _check_amounts(arrays: dict[str, np.ndarray]) -> None:
    for name in ("flops", "guided_flops"):
        if (arrays[name] < 0).any():
            raise ValueError(f"trace: {name} holds a negative count")
    for name in ("recomputed", "probe_tv", "draft_p_f", "draft_p_g", "guider_p", "guider_top_p"):
        inside = (arrays[name] >= 0) & (arrays[name] <= 1)
        if name == "draft_p_g":
            inside |= np.isnan(arrays[name])  # not computed
        if not inside.all():
            raise ValueError(f"trace: {name} holds a share outside 0 to 1")
    for name in ("guided_nll", "draft_kl", "commit_confidence"):
        if (np.isinf(arrays[name]) | (arrays[name] < 0)).any():
            raise ValueError(f"trace: {name} holds a number that is infinite or negative")
    for name in ("forward_ms", "decide_ms", "guided_ms"):
        if not ((arrays[name] >= 0) & (arrays[name] <= MAX_MS)).all():
            raise ValueError(f"trace: {name} holds a time outside 0 to {MAX_MS:.0e} milliseconds")


def _check_order(arrays: dict[str, np.ndarray]) -> None:
    rising = ("commit_step", "piece_end", "probe_row")
    for name in (*rising, "draft_step", "guider_step", "guider_piece_end"):
        if (np.diff(arrays[name]) < 0).any():
            raise ValueError(f"trace: {name} must not decrease")
    for name in RISING:
        if (np.diff(arrays[name]) <= 0).any():
            raise ValueError(f"trace: {name} must rise")
    if len(np.unique(arrays["commit_position"])) < len(arrays["commit_position"]):
        raise ValueError("trace: a position is committed twice")
    if (arrays["similarity_group"][:, 0] >= arrays["similarity_group"][:, 1]).any():
        raise ValueError("trace: similarity_group holds a group without positions")
