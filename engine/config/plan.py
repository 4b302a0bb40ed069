"""DerivedPlan: what a RunSpec's settings come to before anything is run."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from engine.config.branch_start import REMASK
from engine.config.spec import MAX_LENGTH, RunSpec


@dataclass(frozen=True)
class DerivedPlan:
    """What the settings come to before anything is run.

    `steps_per_block` and `tokens_per_step` (of a block with nothing given) are None where the
    unmasker decides by confidence, the tokens also where chance decides. The forwards lie between
    the two bounds, which are equal where a schedule runs to its end. Of a branch they hold
    whatever its parent has decoded.
    """

    blocks: int
    steps_per_block: int | None
    tokens_per_step: tuple[int, ...] | None
    min_forwards: int
    max_forwards: int


def quota(masked: int, steps: int) -> tuple[int, ...]:
    """Tokens owed in each of `steps` steps for `masked` masks (LLaDA, get_num_transfer_tokens)."""
    return tuple(masked // steps + (i < masked % steps) for i in range(steps))


def derive(
    spec: RunSpec,
    scheduled: bool,
    shares: Callable[[int, int], tuple[int, ...] | None] = quota,
    jumps: bool = False,
) -> DerivedPlan:
    """The plan of a spec; `scheduled` says that the unmasker spends `steps`, `shares` how.

    It gives the tokens of each step for (masks, steps), or None where chance decides; `jumps`
    says that a step may fill several blocks. Raises ValueError naming `steps` and its nearest
    valid values.
    """
    blocks, masks = spec.blocks, _masks(spec)
    sure = masks if spec.start is None else _remasked(spec)
    least = sum(n > 0 for n in sure)
    if spec.eos != "official" or jumps:
        least = min(least, 1)
    if not scheduled:
        return DerivedPlan(blocks, None, None, least, sum(masks))
    if spec.steps % blocks:
        low = spec.steps // blocks * blocks
        near = [n for n in (low, low + blocks) if 0 < n <= MAX_LENGTH]
        raise ValueError(
            f"steps: {spec.steps} is not a multiple of the {blocks} blocks; "
            f"nearest valid: {' or '.join(map(str, near))}"
        )
    steps = spec.steps // blocks
    most = sum(_forwards(n, steps, shares) for n in masks)
    owed = shares(spec.block_length, steps)
    if owed is not None and spec.start is None and spec.eos == "official":
        least = most
    return DerivedPlan(blocks, steps, owed, least, most)


def _forwards(masked: int, steps: int, shares: Callable[[int, int], tuple[int, ...] | None]) -> int:
    """Most steps that a block of `masked` masks takes: to the last that owes anything."""
    owed = shares(masked, steps) if masked else ()
    return steps if owed is None else max((i + 1 for i, n in enumerate(owed) if n), default=0)


def _masks(spec: RunSpec) -> list[int]:
    """Positions of each block that are left to decode; of a branch, the most there can be."""
    counts = [spec.block_length] * spec.blocks
    for offset, _ in spec.fixed:
        counts[offset // spec.block_length] -= 1
    for offset, token in spec.start.edits if spec.start else ():
        counts[offset // spec.block_length] -= token != REMASK
    return counts


def _remasked(spec: RunSpec) -> list[int]:
    """Positions of each block that a branch masks again."""
    counts = [0] * spec.blocks
    for offset, token in spec.start.edits if spec.start else ():
        counts[offset // spec.block_length] += token == REMASK
    return counts
