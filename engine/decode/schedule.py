"""The even schedule: how many tokens a step of a block owes (LLaDA, arXiv 2502.09992)."""

from __future__ import annotations

from torch import Tensor


def owed(opened: Tensor, left: Tensor, steps: int, step: int) -> Tensor:
    """Tokens [B] that step `step` (from 0) of a block owes.

    q_i = floor(M / s) + [i < M mod s] for M masks `opened` at the block's start and s `steps`, and
    what earlier steps did not find to commit; `left` [B] are masked still.
    """
    before = _through(opened, steps, step)
    behind = (before - (opened - left)).clamp_min(0)
    return _through(opened, steps, step + 1) - before + behind


def _through(opened: Tensor, steps: int, count: int) -> Tensor:
    """The quotas of the first `count` steps together."""
    count = min(count, steps)
    return opened // steps * count + (opened % steps).clamp_max(count)
