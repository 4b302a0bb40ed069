"""DerivedPlan: what a RunSpec's settings come to before anything is run."""

from __future__ import annotations

from dataclasses import dataclass

from engine.spec import MAX_LENGTH, RunSpec


@dataclass(frozen=True)
class DerivedPlan:
    """What the settings come to before anything is run.

    `steps_per_block` and `tokens_per_step` (of one block) are None where the unmasker
    decides by confidence; then the forwards lie between the two bounds.
    """

    blocks: int
    steps_per_block: int | None
    tokens_per_step: tuple[int, ...] | None
    min_forwards: int
    max_forwards: int


def quota(masked: int, steps: int) -> tuple[int, ...]:
    """Tokens owed in each of `steps` steps for `masked` masks (LLaDA, get_num_transfer_tokens)."""
    return tuple(masked // steps + (i < masked % steps) for i in range(steps))


def derive(spec: RunSpec, scheduled: bool) -> DerivedPlan:
    """The plan of a spec; `scheduled` says that the unmasker spends `steps` as a quota.

    Raises ValueError naming `steps` and its nearest valid values.
    """
    blocks = spec.blocks
    if not scheduled:
        return DerivedPlan(blocks, None, None, blocks, spec.gen_length)
    if spec.steps % blocks:
        low = spec.steps // blocks * blocks
        near = [n for n in (low, low + blocks) if 0 < n <= MAX_LENGTH]
        raise ValueError(
            f"steps: {spec.steps} is not a multiple of the {blocks} blocks; "
            f"nearest valid: {' or '.join(map(str, near))}"
        )
    owed = quota(spec.block_length, spec.steps // blocks)
    forwards = blocks * sum(n > 0 for n in owed)
    return DerivedPlan(blocks, spec.steps // blocks, owed, forwards, forwards)
