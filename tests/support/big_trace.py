"""Traces of any size made without a model: of random numbers, or with plausible drifts."""

from __future__ import annotations

import numpy as np

from engine.core.drift_codes import NOT_EVALUATED
from engine.core.events import GUIDED, KINDS, PARTS, QUANTITIES, SITES
from engine.trace.columns import of_pieces
from engine.trace.schema import SCHEMA, check_arrays, empty_arrays
from engine.trace.synthetic import synthetic_events, synthetic_spec
from engine.trace.trace import Trace
from tests.support.traces import trace_of

VOCABULARY, TOP = 50, 4  # tokens, and candidates of a position
MAX_COMPARED = 256


def make_big_trace(
    layers: int, steps: int, positions: int, prompt: int, guided: bool = True
) -> Trace:
    """A finished run recorded at level `probe`.

    The rows [prompt, positions) are the answer, decoded in blocks of 32; the recomputed rows come
    in runs, as those of a real run do. The same arguments give the same trace.
    """
    rng, block = np.random.default_rng(layers * steps + positions), 32
    sizes = steps, layers, positions
    arrays = empty_arrays() | _steps(rng, sizes, prompt, block)
    arrays |= _recording(rng, sizes) | _candidates(rng, sizes, prompt, block)
    arrays |= _similarity(rng, sizes, prompt, block) | _probes(rng, sizes, prompt)
    if guided:
        arrays |= _guided(rng, arrays, sizes)
    trace = Trace()
    trace.meta |= {
        "reason": "done", "environment": {}, "guider": {}, "texts": [""],
        "spec": {"block_length": block, "cache": "dare_o", "record": "probe"},
        "model": {"mask_id": 0, "vocab_size": VOCABULARY, "layers": layers},
        "facts": _bound_facts(layers),
    }  # fmt: skip
    trace._pieces = trace._guider_pieces = _words()
    _hold(trace, arrays)
    return trace


def make_synthetic_trace(layers: int, steps: int, positions: int) -> Trace:
    """The run of `python -m engine synthetic --probe`, with what every view needs.

    These are the drafts of a guider and the thresholds of DARE's bound.
    """
    run = trace_of(synthetic_events(synthetic_spec(steps, probe=True), layers, positions))
    trace = run.snapshot()
    trace.meta["spec"]["cache"] = "dare_o"
    trace.meta |= {"facts": _bound_facts(layers), "guider": {}}
    trace._guider_pieces = _words()
    arrays = trace.arrays()
    _hold(trace, arrays | _guided(np.random.default_rng(0), arrays, (steps, layers, positions)))
    return trace


def narrowed(
    trace: Trace, layers: list[int], quantities: list[int], every: int, positions: slice
) -> Trace:
    """The trace as if only these cells of its drifts had been recorded, from 0."""
    arrays, found = trace.arrays(), Trace()
    places = np.arange(len(arrays["canvas"]))[positions]
    steps = np.arange(trace.steps)[::every]
    sites = [i for i in quantities if i < len(SITES)]
    kept = {
        "drift": arrays["drift"][np.ix_(steps, layers, quantities, places)],
        "similarity": arrays["similarity"][:, :, layers],
        "drift_step": steps, "recorded_layer": layers, "recorded_quantity": quantities,
        "recorded_position": places,
    }  # fmt: skip
    if not {0, 1} <= set(quantities):
        kept |= {name: arrays[name][:0] for name in ("similarity", "similarity_step")}
    for name in ("probe_error", "probe_moved"):
        rows = np.arange(len(arrays[name]))
        kept[name] = arrays[name][np.ix_(rows, layers, sites, places)]
    found.meta = trace.meta
    found._pieces, found._guider_pieces = trace._pieces, trace._guider_pieces
    given = {name: np.asarray(array, SCHEMA[name][0]) for name, array in kept.items()}
    found._arrays = check_arrays(arrays | given, trace.meta["model"]["vocab_size"])
    return found


def _bound_facts(layers):
    return {"threshold": [0.1] * layers, "reuse": [0.5] * layers}


def _words():
    return {i: b"t%d" % i for i in range(VOCABULARY)}


def _hold(trace, arrays):
    held = arrays | of_pieces("", trace._pieces) | of_pieces("guider_", trace._guider_pieces)
    trace._arrays = {
        name: held[name].astype(kind, copy=False) for name, (kind, _) in SCHEMA.items()
    }


def _steps(rng, sizes, prompt, block):
    steps, _, positions = sizes
    answer = positions - prompt
    commit_step = np.sort(np.arange(answer) * steps // answer)
    forward = rng.random(steps) * 10
    return {
        "canvas": np.where(np.arange(positions) < prompt, 1 + np.arange(positions) % 9, 0),
        "prompt_mask": np.arange(positions) < prompt,
        "fixed_mask": np.zeros(positions, bool),
        "block": np.arange(steps) * answer // steps // block,
        "block_step": np.arange(steps) % block,
        "kind": np.full(steps, KINDS.index("partial")),
        "rows": np.full(steps, positions),
        "forwards": np.ones(steps),
        "masks_left": np.full(steps, 1),
        "forward_ms": forward,
        "decide_ms": forward / 10,
        "flops": np.full((steps, len(PARTS)), 10**9),
        "recomputed": rng.random(steps),
        "commit_step": commit_step,
        "commit_position": prompt + np.arange(answer),
        "commit_id": rng.integers(1, VOCABULARY, answer),
        "commit_confidence": rng.random(answer),
    }


def _recording(rng, sizes):
    steps, layers, positions = sizes
    wide = -(-positions // 8)
    tail = np.packbits(np.arange(8 * wide) < positions)
    plan = np.repeat(rng.integers(0, 2, (steps, layers, len(SITES), -(-wide // 4))), 4, -1)
    plan = (plan[..., :wide] * np.uint8(255)).astype(np.uint8) & tail
    plan[0] = tail
    drift = np.empty((steps, layers, len(QUANTITIES), positions), np.uint8)
    for step in range(steps):
        drift[step] = rng.integers(0, 200, drift.shape[1:], np.uint8)
        reused = np.unpackbits(plan[step], axis=-1, count=positions) == 0
        drift[step, :, : len(SITES)][reused] = NOT_EVALUATED
    drift[0] = NOT_EVALUATED
    planned = rng.integers(0, len(KINDS), (steps, 3))
    recorded = {"drift_step": steps, "recorded_layer": layers, "recorded_position": positions}
    recorded["recorded_quantity"] = len(QUANTITIES)
    found = {name: np.arange(count) for name, count in recorded.items()}
    return found | {"plan": plan, "drift": drift, "planned": planned}


def _candidates(rng, sizes, prompt, block):
    steps, _, positions = sizes
    answer = positions - prompt
    starts = prompt + np.arange(steps) * answer // steps // block * block
    counts = np.minimum(positions - starts, block)
    step = np.repeat(np.arange(steps), counts)
    place = np.concatenate([low + np.arange(n) for low, n in zip(starts, counts, strict=True)])
    return {
        "candidate_step": step,
        "candidate_position": place,
        "candidate_id": rng.integers(1, VOCABULARY, (len(step), TOP)),
        "candidate_prob": -np.sort(-rng.random((len(step), TOP), np.float32), axis=1),
    }


def _similarity(rng, sizes, prompt, block):
    steps, layers, positions = sizes
    compared = np.arange(0, steps, -(-steps // MAX_COMPARED))
    groups = np.array([[0, prompt], [prompt, min(prompt + block, positions)]])
    pairs = len(compared) * (len(compared) + 1) // 2
    codes = rng.integers(0, 256, (pairs, 2, layers, len(groups)), np.uint8)
    return {"similarity": codes, "similarity_step": compared, "similarity_group": groups}


def _probes(rng, sizes, prompt):
    steps, layers, positions = sizes
    probes = np.unique(np.linspace(0, steps - 1, 8).astype(int))
    shape = (len(probes), layers, len(SITES), positions)
    rows = np.repeat(np.arange(len(probes)), positions - prompt)
    lens = (len(probes), 2, layers, positions - prompt)
    return {
        "probe_step": probes,
        "probe_error": rng.integers(0, 256, shape, np.uint8),
        "probe_moved": rng.integers(0, 256, shape, np.uint8),
        "probe_row": rows,
        "probe_position": np.tile(np.arange(prompt, positions), len(probes)),
        "probe_tv": rng.random(len(rows)),
        "probe_top": rng.integers(0, VOCABULARY, (len(rows), 2)),
        "lens_position": np.arange(prompt, positions),
        "lens_id": rng.integers(0, VOCABULARY, lens),
        "lens_prob": rng.integers(0, 256, lens, np.uint8),
        "lens_token_prob": rng.integers(0, 256, lens, np.uint8),
    }


def _guided(rng, arrays, sizes):
    steps = sizes[0]
    step, place = arrays["candidate_step"], arrays["candidate_position"]
    drafted = np.bincount(step, minlength=steps)
    counts = np.zeros((steps, len(GUIDED)), np.int64)
    counts[:, GUIDED.index("drafted")] = counts[:, GUIDED.index("judged")] = drafted
    counts[:, GUIDED.index("accepted")] = drafted // 2
    ends = np.concatenate([2 * np.arange(1, n + 1) for n in drafted])
    found = {
        "guided_count": counts, "guided_nll": rng.random(steps), "guided_ms": np.ones((steps, 2)),
        "guided_flops": np.ones((steps, 2)), "draft_position": place,
    }  # fmt: skip
    for name in ("draft", "guider"):
        found |= {
            f"{name}_step": step,
            f"{name}_end": ends,
            f"{name}_ok": rng.random(len(step)) < 0.5,
        }
        found[f"{name}_id"] = rng.integers(1, VOCABULARY, len(step))
    for name in ("draft_p_f", "draft_p_g", "draft_kl", "guider_p", "guider_top_p"):
        found[name] = rng.random(len(step))
    found["guider_rank"] = rng.integers(0, 6, len(step))
    found["guider_top"] = rng.integers(1, VOCABULARY, len(step))
    return found
