"""What the settings come to, in words, before anything is run."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from engine.config.spec import RunSpec
from inspector.page_data.sizes import size


def sentence(spec: RunSpec, plan: Mapping[str, Any]) -> str:
    """The derived plan of one lane in a line."""
    blocks, low, high = plan["blocks"], plan["min_forwards"], plan["max_forwards"]
    owed = plan["tokens_per_step"]
    if not owed:
        shape = f"{_count(blocks, 'block')} of {spec.block_length}"
        judge = "chance" if plan["steps_per_block"] else "confidence"
        judge = "the guider" if spec.unmasker == "guided" else judge
        return f"{shape}, {judge} decides: between {low} and {_count(high, 'forward')}"
    few, many = min(owed), max(owed)
    tokens = _count(many, "token") if few == many else f"{few} to {_count(many, 'token')}"
    return (
        f"{_count(spec.steps, 'step')} / {_count(blocks, 'block')} = "
        f"{plan['steps_per_block']} per block, {tokens} a step, {_count(high, 'forward')}"
    )


def room(spec: RunSpec, plan: Mapping[str, Any]) -> str:
    """How much of the model's context the run takes; without the prompt until it can be read."""
    prompt, context = plan.get("prompt_tokens"), plan.get("context")
    if context is None:
        return ""
    before = "" if prompt is None else f"prompt {prompt} + "
    return f"{before}answer {spec.gen_length} of {context} tokens"


def memory(plans: Iterable[Mapping[str, Any]]) -> str:
    """What weights, held once, and both runs take of the device, and what is fetched first."""
    rows = list(plans)
    weights, free, fetched = (rows[0][f"{name}_bytes"] for name in ("weights", "free", "fetch"))
    parts = []
    if weights is not None:
        runs = sum(row["memory_bytes"] - row["weights_bytes"] for row in rows)
        guider = sum(row.get("guider_bytes") or 0 for row in rows)
        of = f" ({size(guider)} a guider's)" if guider else ""
        parts.append(f"weights {size(weights)} + runs {size(runs)}{of} of {size(free)} free")
    if fetched != 0:
        parts.append(f"{size(fetched) if fetched else 'the model'} to be fetched first")
    if any(row.get("guider_bytes", 0) is None for row in rows):
        parts.append("the guider to be fetched first")
    asked = sum(row.get("gpu_seconds", 0) for row in rows)
    if asked:
        parts.append(f"asks ZeroGPU for {asked} s of your share")
    return "; ".join(parts)


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'s' * (number != 1)}"
