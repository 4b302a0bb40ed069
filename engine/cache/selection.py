"""Numbers of rows to select, and the rows that a mask marks."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from engine.core.device import HostCopy, upload
from engine.core.rows import ALL, NONE, Rows


def share(ratio: float, rows: int) -> int:
    """Number of rows for a ratio above 0: rounded down, at least one."""
    return max(1, int(ratio * rows))


def ranks(counts: Sequence[int], device: torch.device) -> Tensor:
    """Ranks 0 to count - 1 of each sequence, [B, largest count]; a shorter one repeats its last."""
    last = np.array(counts)[:, None] - 1
    return upload(np.minimum(np.arange(max(counts)), last), device)


def marked_rows(mask: Tensor, active: Rows) -> tuple[Rows, list[int]]:
    """Global rows of the `active` ones that `mask` [B, R] marks, and their number by sequence.

    ALL if every row is marked, NONE if none is. The rows ascend; a sequence with fewer
    rows repeats its last one, or its first active row if it has none. Waits for the device.
    """
    (sums,) = HostCopy(mask.sum(1)).get()
    counts = sums.tolist()
    if min(counts) == mask.shape[1]:
        return ALL, counts
    if max(counts) == 0:
        return NONE, counts
    first = (~mask).to(torch.uint8).argsort(dim=1, stable=True)[:, : max(counts)]
    last = (mask.sum(1, keepdim=True) - 1).clamp_min(0)
    places = torch.arange(max(counts), device=mask.device).minimum(last)
    local = first.gather(1, places)
    if isinstance(active, Tensor):
        return active.gather(1, local), counts
    return local + (active.start if isinstance(active, slice) else 0), counts
