"""Rules that accept a leading run of the confidence order."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from engine.decode.base import Candidates, Commit


def leading_run(candidates: Candidates, passes: Callable[[Tensor, Tensor], Tensor]) -> Commit:
    """Commit the longest run from the top whose every rank passes, at least one.

    `passes` takes ranks [n] from 1 and doubts 1 - c [B, n] in falling order of score.
    """
    ordered = candidates.score.gather(1, candidates.ranking())
    ranks = torch.arange(1, ordered.shape[1] + 1, device=ordered.device)
    run = passes(ranks, 1 - ordered).long().cumprod(1).sum(1)
    return Commit(candidates.leading(run.clamp_min(1)), candidates.ids)
