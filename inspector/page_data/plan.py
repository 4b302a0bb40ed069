"""The plan of a race in words, shown before it is run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

from engine.config.answers import fitting_length
from engine.config.blocks import BlockGrid
from engine.config.race_memory import RaceMemory
from engine.config.spec import RaceSpec, RunSpec
from inspector.page_data.sizes import counted, size
from inspector.protocol import LANES, Lane, Session

# What a run does at the end of its text, by rule.
END_OF_TEXT = {
    "official": "every position is decoded, also after the end of the text",
    "fill_safe": "decoding stops at the end of the text once all before it is decoded",
    "fill_eager": "nothing after an end of text is decoded any more",
}
UNCONDITIONAL = ", and at most as many again for guidance"
AFTER_BLOCK = "decoding stops after the block in which the text ends"  # official, block-causal


def race_plans(session: Session, race: RaceSpec) -> dict[Lane, dict[str, Any]]:
    """The plans of both lanes, by lane (Session.plan).

    Raises ValueError if a plan is refused, naming the lane if only one is, or if the lanes do not
    fit together.
    """
    plans, faults = {}, {}
    with suppress(ValueError):  # the plan of the faulty lane raises the same error
        race = session.resolve(race)
    for lane, spec in zip(LANES, (race.a, race.b), strict=True):
        try:
            plans[lane] = session.plan(spec)
        except ValueError as error:
            faults[lane] = str(error)
    if len(faults) == len(LANES) and len(set(faults.values())) == 1:
        raise ValueError(faults["a"])
    if faults:
        lane, fault = next(iter(faults.items()))
        raise ValueError(f"Lane {lane.upper()}, {fault}")
    session.check_race(race, list(plans.values()))
    return plans


def sentence(spec: RunSpec, plan: Mapping[str, Any]) -> str:
    """The derived plan of one lane in one line: blocks, steps, tokens and forwards."""
    decoding, measured = _decoding(spec, plan), plan.get("calibration_forwards")
    if not measured:
        return decoding
    return (
        f"{decoding}; before the run at most {counted(measured, 'forward')} measure the drifts "
        "that the cache needs on this model (once, not timed)"
    )


def _decoding(spec: RunSpec, plan: Mapping[str, Any]) -> str:
    """`sentence` without what comes before the run."""
    blocks, low, high = plan["blocks"], plan["min_forwards"], plan["max_forwards"]
    forwards = counted(high, "forward")
    forwards = forwards if low == high else f"between {low} and {forwards}"
    owed, second = plan["tokens_per_step"], UNCONDITIONAL if spec.cfg_scale else ""
    if spec.unmasker == "autoregressive":
        return f"one token a forward: {forwards}"
    if not owed:
        shape = f"{counted(blocks, 'block')} of {spec.block_length}"
        return f"{shape}, {_criterion(spec, plan)}: {forwards}{second}"
    few, many = min(owed), max(owed)
    tokens = counted(many, "token") if few == many else f"{few} to {counted(many, 'token')}"
    shared, most = "", "" if plan.get("prompt_tokens") else "at most "
    if blocks > spec.blocks:
        shared = f", {most}{counted(blocks, 'block')} with the one that the prompt shares"
    return (
        f"{counted(spec.steps, 'step')} / {counted(spec.blocks, 'block')} = "
        f"{plan['steps_per_block']} per block{shared}, {tokens} a step, {forwards}{second}"
    )


def _criterion(spec: RunSpec, plan: Mapping[str, Any]) -> str:
    """What decides how many tokens a step commits, if no schedule does."""
    if spec.unmasker == "guided":
        return "the guider decides"
    if plan["confidence_decides"]:
        return "confidence decides"
    return "chance decides" if spec.cache == "none" else "chance or the cache decides"


def context_use(spec: RunSpec, plan: Mapping[str, Any]) -> str:
    """The tokens of prompt, answer and suffix, in whole blocks if need be, and the model's context.

    Empty if the context length is unknown; without the prompt if its length is unknown.
    """
    prompt, context = plan.get("prompt_tokens"), plan.get("context")
    if context is None:
        return ""
    shown = f" (images {plan['image_rows']})" if plan.get("image_rows") else ""
    before = "" if prompt is None else f"prompt {prompt}{shown} + "
    suffix = plan.get("suffix_tokens") or 0
    after, length = f" + suffix {suffix}" if suffix else "", (prompt or 0) + spec.gen_length
    if prompt is not None and plan.get("attention") == "block_causal":
        whole = BlockGrid.of(prompt, spec.gen_length, spec.block_length, True).stop
        after = f", {whole} in whole blocks," if whole > length else ""
    return f"{before}answer {spec.gen_length}{after} of {context} tokens"


def worked_answer(tokens: int, spec: RunSpec) -> str:
    """What to add to `context_use` for a problem whose worked answer has `tokens` tokens."""
    length = fitting_length(tokens, spec.block_length)
    words = f"; the worked answer has {counted(tokens, 'token')}"
    if spec.gen_length == length:
        return f"{words}, rounded up to blocks of {spec.block_length}"
    return f"{words}, for which {length} would do"


def end_of_text(plans: Sequence[Mapping[str, Any]]) -> str:
    """The end-of-text rules of both lanes in words."""
    rules = [f"{_ending(plan)} ({plan['end_of_text']})" for plan in plans]
    if len(set(rules)) == 1:
        return f"in both lanes {rules[0]}"
    lanes = [f"in lane {lane} {rule}" for lane, rule in zip("AB", rules, strict=True)]
    return "unequal end-of-text rules: " + "; ".join(lanes)


def _ending(plan: Mapping[str, Any]) -> str:
    """What a run does at the end of its text."""
    rule = plan["end_of_text"]
    if rule == "official" and plan["attention"] == "block_causal":
        return AFTER_BLOCK
    return END_OF_TEXT[rule]


def share_model(a: RunSpec, b: RunSpec) -> bool:
    """Whether the same model decodes both lanes of a race."""
    names = [
        spec.knobs.get("autoregressive.model") if spec.unmasker == "autoregressive" else spec.model
        for spec in (a, b)
    ]
    return names[0] == names[1]


def memory(rows: Sequence[Mapping[str, Any]], shared: bool = True) -> str:
    """Memory of the weights and of both runs, downloads needed, and size of a recording.

    `shared` tells whether one model decodes both lanes, so that its weights are counted once. A
    number format that `auto` chose precedes them. If a recording would be refused, the reason
    follows.
    """
    known = [row for row in rows if row["weights_bytes"] is not None]
    parts = [
        f"number format {row['dtype']} ({row['dtype_reason']})"
        for row in rows
        if row.get("dtype_reason")
    ][:1]
    if known:
        weights = sum(row["weights_bytes"] for row in (known[:1] if shared else known))
        runs, guider = RaceMemory.of(known)
        of = f" ({size(guider)} of it the guider)" if guider else ""
        free = max(row["free_bytes"] for row in known)
        parts.append(f"weights {size(weights)} + runs {size(runs)}{of} of {size(free)} free")
    fetches = [row["fetch_bytes"] for row in rows]
    if None in fetches:
        parts.append("the model to download first")
    elif any(fetches):  # of a shared model: a lane with a guider downloads that too
        fetched = max(fetches) if shared else sum(fetches)
        parts.append(f"{size(fetched)} to download first")
    if any(row["guider_bytes"] is None for row in rows):
        parts.append("the guider to download first")
    asked = sum(row.get("gpu_seconds", 0) for row in rows)
    if asked:
        parts.append(f"requests {asked} s of your ZeroGPU quota")
    recordings = [row["recording"] for row in rows if row.get("recording")]
    if recordings:
        parts.append(f"recording: about {size(sum(one['bytes'] for one in recordings))}")
    problem = next(filter(None, (one["problem"] for one in recordings)), "")
    return "; ".join([*parts, problem] if problem else parts)
