"""What the settings come to, in words, before anything is run."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from engine.spec import RunSpec


def sentence(spec: RunSpec, plan: Mapping[str, Any]) -> str:
    """The derived plan of one lane in a line."""
    blocks, low, high = plan["blocks"], plan["min_forwards"], plan["max_forwards"]
    owed = plan["tokens_per_step"]
    if not owed:
        shape = f"{_count(blocks, 'block')} of {spec.block_length}"
        judge = "chance" if plan["steps_per_block"] else "confidence"
        return f"{shape}, {judge} decides: between {low} and {_count(high, 'forward')}"
    few, many = min(owed), max(owed)
    tokens = _count(many, "token") if few == many else f"{few} to {_count(many, 'token')}"
    return (
        f"{_count(spec.steps, 'step')} / {_count(blocks, 'block')} = "
        f"{plan['steps_per_block']} per block, {tokens} a step, {_count(high, 'forward')}"
    )


def room(spec: RunSpec, plan: Mapping[str, Any]) -> str:
    """How much of the model's context the run takes."""
    prompt, context = plan.get("prompt_tokens"), plan.get("context")
    if prompt is None or context is None:
        return ""
    return f"prompt {prompt} + answer {spec.gen_length} of {context} tokens"


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'s' * (number != 1)}"
