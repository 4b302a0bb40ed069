"""The plan of a race in words, shown before it is run."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from engine.config.answers import fitting_length
from engine.config.blocks import BlockGrid
from engine.config.spec import RunSpec
from inspector.page_data.sizes import counted, size

# What a run does at the end of its text, by rule.
END_OF_TEXT = {
    "official": "every position is decoded, also after the end of the text",
    "fill_safe": "decoding stops at the end of the text once all before it is decoded",
    "fill_eager": "nothing after an end of text is decoded any more",
}
UNCONDITIONAL = ", and at most as many again for guidance"
AFTER_BLOCK = "decoding stops after the block in which the text ends"  # official, block-causal


def sentence(spec: RunSpec, plan: Mapping[str, Any]) -> str:
    """The derived plan of one lane in one line: blocks, steps, tokens and forwards."""
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


def memory(plans: Iterable[Mapping[str, Any]]) -> str:
    """Memory of the weights (once) and of both runs, downloads needed, and size of a recording.

    A number format that `auto` chose precedes them. If a recording would be refused, the reason
    follows.
    """
    rows = list(plans)
    weights, free, fetched = (rows[0][f"{name}_bytes"] for name in ("weights", "free", "fetch"))
    parts = [
        f"number format {row['dtype']} ({row['dtype_reason']})"
        for row in rows
        if row.get("dtype_reason")
    ][:1]
    if weights is not None:
        runs = sum(row["memory_bytes"] - row["weights_bytes"] for row in rows)
        guider = sum(row.get("guider_bytes") or 0 for row in rows)
        of = f" ({size(guider)} of it the guider)" if guider else ""
        parts.append(f"weights {size(weights)} + runs {size(runs)}{of} of {size(free)} free")
    if fetched != 0:
        parts.append(f"{size(fetched) if fetched else 'the model'} to download first")
    if any(row.get("guider_bytes", 0) is None for row in rows):
        parts.append("the guider to download first")
    asked = sum(row.get("gpu_seconds", 0) for row in rows)
    if asked:
        parts.append(f"requests {asked} s of your ZeroGPU quota")
    recordings = [row["recording"] for row in rows if row.get("recording")]
    if recordings:
        parts.append(f"recording: about {size(sum(one['bytes'] for one in recordings))}")
    problem = next(filter(None, (one["problem"] for one in recordings)), "")
    return "; ".join([*parts, problem] if problem else parts)
