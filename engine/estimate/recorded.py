"""Assumptions taken from a recorded run: tokens a forward, and the share that data decides."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np

from engine.catalog import derive_plan, make_policy, make_unmasker
from engine.config.spec import RunSpec
from engine.estimate.assumptions import Assumptions
from engine.estimate.estimate import MAX_LAYER_FORWARDS, Target, layer_forwards, simulate
from engine.models.base import ModelInfo
from engine.models.feed_forward import ROUTERS, ExpertsInfo
from engine.trace.metrics import recomputed_share
from engine.trace.schema import MAX_LAYERS
from engine.trace.trace import Trace

MAX_SIZE = 1_000_000
NEAR, TRIES = 0.005, 12  # a share is searched until its work is so near the run's, relatively
LEAST_TRIES = 3


def assumptions_of(trace: Trace, spec: RunSpec) -> Assumptions:
    """The assumptions with which an estimate of the recorded run gives its forwards and rows.

    `spec` is the run to be estimated: the recorded one must have its unmasker if the tokens of a
    forward are taken from it, and its cache if the share is. Raises ValueError naming `recorded`,
    or a setting of the recorded run that is impossible.
    """
    arrays = trace.arrays()
    steps, committed = trace.steps, len(arrays["commit_position"])
    if not steps or not committed:
        raise ValueError("recorded: the run has no steps; record one that commits tokens")
    name = trace.meta["model"].get("name", "a model")
    source = f"from the recorded run on {name}, {steps} steps"
    tokens, share, filled = None, None, 0
    if make_unmasker(spec).confidence_decides:
        _with_method_of("unmasker", trace, spec)
        tokens = max(committed / steps, 1.0)
        filled = int(np.isnan(arrays["commit_confidence"]).sum())
    if make_policy(spec).data_rows() is not None:
        own = _with_method_of("cache", trace, spec)
        derive_plan(own)  # settings of a file may not fit together
        prompt = trace.prompt_length
        suffix = len(arrays["prompt_mask"]) - prompt - own.gen_length if own.suffix else 0
        target = Target(own.model, recorded_info(trace), prompt, suffix)
        work, fills = float(arrays["recomputed"].sum()), int(trace.commit_calls.sum())
        recomputed = recomputed_share(work, steps, fills)
        share = share_of(own, target, committed / steps, recomputed)
    return Assumptions(tokens, share, source, filled)


def recorded_spec(trace: Trace) -> RunSpec:
    """The settings of a recorded run. Raises ValueError naming `recorded` if they are not known."""
    if "foreign" in trace.meta:
        raise ValueError(
            "recorded: another engine decoded the run, so its unmasker and its cache are not "
            "known; record a run here, or leave recorded out and give tokens_per_forward or share "
            "in assumptions"
        )
    try:
        return RunSpec.from_dict(trace.meta["spec"])
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError(f"recorded: the settings of the run cannot be read ({error})") from None


def _with_method_of(field: str, trace: Trace, spec: RunSpec) -> RunSpec:
    """The settings of a recorded run; ValueError if its method of a kind is not that of `spec`."""
    own = recorded_spec(trace)
    mine, its = getattr(spec, field), getattr(own, field)
    if mine != its:
        raise ValueError(
            f"recorded: the run has {field} {its} and the estimate {mine}; record a run with {mine}"
        )
    return own


def share_of(spec: RunSpec, target: Target, tokens: float, recomputed: float) -> float | None:
    """The share at which an estimate recomputes as much as a run did; None if there is no choice.

    `recomputed` is the run's share of token-layers (engine.trace.metrics.recomputed_share) and
    `tokens` its tokens a forward. The work grows with the share, but not evenly: at 0, DARE-O
    computes layers less often than with any row.
    Raises ValueError naming `recorded` if the search would have more than MAX_LAYER_FORWARDS.
    """
    if make_policy(spec).data_rows() is None:
        return None
    spec = dataclasses.replace(spec, start=None, eos="official", record="off")
    tries = min(TRIES, MAX_LAYER_FORWARDS // layer_forwards(spec, target.info) - 2)
    if tries < LEAST_TRIES:
        raise ValueError(
            f"recorded: with {target.info.layers} layers the run is too long to search for the "
            "share of its rows; leave recorded out and give the share in assumptions"
        )

    def work(share: float) -> float:
        return simulate(spec, target, Assumptions(max(tokens, 1.0), share)).recomputed

    known = {0.0: work(0.0), 1.0: work(1.0)}

    def distance(share: float) -> float:
        return abs(known[share] - recomputed)

    for turn in range(tries):
        below = [share for share in known if known[share] < recomputed]
        above = [share for share in known if known[share] >= recomputed]
        if not below or not above or min(map(distance, known)) <= NEAR * recomputed:
            break
        low, high = max(below), min(above)
        part = (recomputed - known[low]) / (known[high] - known[low])
        middle = low + (high - low) * (part if turn % 2 == 0 else 0.5)
        known[middle] = work(middle)
    return min(known, key=distance)


def recorded_info(trace: Trace) -> ModelInfo:
    """The sizes of the recorded run's model. Raises ValueError naming `recorded`."""
    known = {field.name for field in dataclasses.fields(ModelInfo)}
    found: dict[str, Any] = {k: v for k, v in trace.meta["model"].items() if k in known}
    try:
        experts = None if found.get("experts") is None else ExpertsInfo(**found["experts"])
        ids = {"stop_ids": tuple(found["stop_ids"]), "suppressed_ids": (), "text_size": 0}
        info = ModelInfo(**found | ids | {"experts": experts})
    except (KeyError, TypeError) as error:
        raise ValueError(f"recorded: the model's sizes are not in the trace ({error})") from None
    sizes = [info.layers, info.d_model, info.n_heads, info.n_kv_heads, info.head_dim, info.ffn,
             info.vocab_size]  # fmt: skip
    if experts is not None:
        sizes += [experts.count, experts.active, experts.ffn]
        sizes += [experts.shared_ffn or 1, experts.dense_layers or 1]  # which may be 0
    if experts is not None and experts.router not in ROUTERS:
        raise ValueError(f"recorded: the router of the experts is none of {', '.join(ROUTERS)}")
    if not all(type(size) is int and 1 <= size <= MAX_SIZE for size in sizes):
        raise ValueError(f"recorded: the model's sizes are not whole numbers from 1 to {MAX_SIZE}")
    if info.layers > MAX_LAYERS:
        raise ValueError(f"recorded: the model has {info.layers} layers; at most {MAX_LAYERS}")
    ends = [info.mask_id, *info.stop_ids]
    whole = all(type(token) is int for token in ends) and 0 <= info.mask_id < info.vocab_size
    if not whole or len(set(ends)) >= info.vocab_size:
        raise ValueError("recorded: the model's mask and stop ids are not among its tokens")
    if type(info.logit_shift) is not int or info.logit_shift not in (0, 1):
        raise ValueError("recorded: the model's logit_shift is neither 0 nor 1")
    return info
