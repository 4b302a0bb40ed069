"""DerivedPlan: the blocks, steps and forwards that follow from a RunSpec, before it is run."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from engine.config.blocks import BlockGrid
from engine.config.branch_start import REMASK
from engine.config.spec import MAX_LENGTH, RunSpec


@dataclass(frozen=True)
class DerivedPlan:
    """The blocks, steps and forwards of a run.

    `steps_per_block` is None if the unmasker has no schedule; `tokens_per_step` (in a block without
    given tokens) is None if confidence, chance or the cache decides. The bounds of the forwards are
    equal if a schedule runs to its end; those of a branch hold for any tokens of its parent.
    """

    blocks: int
    steps_per_block: int | None
    tokens_per_step: tuple[int, ...] | None
    min_forwards: int
    max_forwards: int


class SharedBlocks(NamedTuple):
    """The blocks of a model with block-causal attention, the first of which a prompt may share.

    `fills` are the most steps that compute known rows alone.
    """

    grid: BlockGrid
    prompt: int
    fills: int


def quota(masked: int, steps: int) -> tuple[int, ...]:
    """Tokens to commit in each step for `masked` masks (LLaDA, get_num_transfer_tokens)."""
    return tuple(masked // steps + (i < masked % steps) for i in range(steps))


def derive(
    spec: RunSpec,
    scheduled: bool,
    shares: Callable[[int, int], tuple[int, ...] | None] = quota,
    multi_block: bool = False,
    shared: SharedBlocks | None = None,
    limited: bool = False,
) -> DerivedPlan:
    """The plan of a spec.

    `scheduled`: the unmasker spreads `spec.steps` over the blocks; `shares` gives the tokens of
    each step for (masks, steps), or None if chance decides. `multi_block`: a step may commit in
    several blocks. `shared` are the blocks if attention is block-causal; each may then end the
    text. `limited`: the cache may let a step commit fewer tokens than the schedule requires, so
    that a block takes more steps. Raises ValueError naming `steps` and its nearest valid values.
    """
    blocks, masks = spec.blocks, _masks(spec, shared)
    certain = masks if spec.start is None else _remasked(spec)
    least, fills = sum(n > 0 for n in certain), 0 if shared is None else shared.fills
    if spec.eos != "official" or multi_block or shared is not None or spec.stop:
        known = bool(spec.fixed) or spec.start is not None  # may hold the end, before any forward
        least = min(least, 0 if known else 1)
    count = blocks if shared is None else len(shared.grid)
    if not scheduled:
        return DerivedPlan(count, None, None, least, sum(masks) + fills)
    if spec.steps % blocks:
        low = spec.steps // blocks * blocks
        near = [n for n in (low, low + blocks) if 0 < n <= MAX_LENGTH]
        raise ValueError(
            f"steps: {spec.steps} is not a multiple of the {blocks} blocks; "
            f"nearest valid: {' or '.join(map(str, near))}"
        )
    steps = spec.steps // blocks
    if limited:
        most = fills + sum(n + _idle(n, steps, shares) for n in masks if n)
        return DerivedPlan(count, steps, None, least, most)
    most = fills + sum(_forwards(n, steps, shares) for n in masks)
    tokens = shares(spec.block_length, steps)
    certain_end = shared is None and spec.eos == "official" and not spec.stop
    if tokens is not None and spec.start is None and certain_end:
        least = most
    return DerivedPlan(count, steps, tokens, least, most)


def _forwards(masked: int, steps: int, shares: Callable[[int, int], tuple[int, ...] | None]) -> int:
    """The largest number of steps that a block with `masked` masks takes."""
    tokens = shares(masked, steps) if masked else ()
    return steps if tokens is None else max((i + 1 for i, n in enumerate(tokens) if n), default=0)


def _idle(masked: int, steps: int, shares: Callable[[int, int], tuple[int, ...] | None]) -> int:
    """The most steps of a block with `masked` masks in which a schedule commits no token."""
    tokens = shares(masked, steps)
    return steps if tokens is None else _forwards(masked, steps, shares) - sum(map(bool, tokens))


def _masks(spec: RunSpec, shared: SharedBlocks | None) -> list[int]:
    """Masked positions of each block; of a branch, their upper bound."""
    count = spec.blocks if shared is None else len(shared.grid)
    before = 0 if shared is None else shared.prompt - shared.grid.start
    counts = [spec.block_length] * count
    counts[0] -= before
    for offset, _ in spec.fixed:
        counts[(before + offset) // spec.block_length] -= 1
    for offset, token in spec.start.edits if spec.start else ():
        counts[(before + offset) // spec.block_length] -= token != REMASK
    return counts


def _remasked(spec: RunSpec) -> list[int]:
    """Positions of each block that the edits of a branch mask again."""
    counts = [0] * spec.blocks
    for offset, token in spec.start.edits if spec.start else ():
        counts[offset // spec.block_length] += token == REMASK
    return counts
