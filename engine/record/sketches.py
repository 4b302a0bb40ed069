"""Sketch: K and V of a few positions over a run, as random projections of few dimensions.

In m dimensions, the cosine of two projections estimates that of the vectors, c, with a standard
error of (1 - c^2) / sqrt(m). Reused values have a cosine of exactly 1.
"""

from __future__ import annotations

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from engine.cache.base import RunInfo
from engine.core.device import upload
from engine.core.events import Similarity
from engine.models.ops import upcast
from engine.record.last_values import LastValues, encode_drift

WIDTH, SEED = 64, 20_505
MAX_STEPS, MAX_BLOCKS = 256, 5
PROMPT_POSITIONS, BLOCK_POSITIONS = 32, 16


def spread(start: int, stop: int, most: int) -> np.ndarray:
    """At most `most` evenly spaced positions of [start, stop), including first and last."""
    return np.unique(np.linspace(start, stop - 1, min(most, stop - start)).round().astype(int))


class Sketch:
    """Sketches of the prompt before the first block, and of up to five blocks (first and last too).

    Of a run of at most `max_steps` steps, every k-th is kept, with the smallest k that gives at
    most 256.
    """

    def __init__(self, run: RunInfo, max_steps: int) -> None:
        first = run.padding[0] if run.padding else 0
        grid = run.grid
        blocks = [grid[int(index)] for index in spread(0, len(grid), MAX_BLOCKS)]
        self._groups = [(block.start, block.stop) for block in blocks]
        sets = [spread(lo, hi, BLOCK_POSITIONS) for lo, hi in self._groups]
        if first < grid.start:
            self._groups.insert(0, (first, grid.start))
            sets.insert(0, spread(first, grid.start, PROMPT_POSITIONS))
        self._positions, self._sizes = np.concatenate(sets), [len(s) for s in sets]
        self._every = max(-(-max_steps // MAX_STEPS), 1)
        self._changed = np.zeros(run.length, bool)
        self._matrix: Tensor | None = None
        self._current: Tensor | None = None
        self._kept: list[Tensor] = []
        self._steps: list[int] = []

    def add(self, step: int, changed: np.ndarray, last: LastValues) -> None:
        """Sketch K and V after a step that recomputed the rows `changed` [T] bool."""
        self._changed |= changed
        if step % self._every or len(self._steps) == MAX_STEPS:
            return
        places = np.flatnonzero(self._changed[self._positions])
        rows = upload(self._positions[places], last.values["k"].device)
        self._changed[:] = False
        new = self._project(last, rows)
        if self._current is None:
            shape = (*new.shape[:2], len(self._positions), new.shape[3])
            self._current = torch.full(shape, torch.nan, dtype=new.dtype, device=new.device)
        if len(places):
            self._current.index_copy_(2, upload(places, new.device), new)
        self._kept.append(self._current.clone())
        self._steps.append(step)

    def result(self) -> Similarity:
        """The mean cosines between all pairs of steps kept."""
        steps, groups = np.array(self._steps, np.int32), np.array(self._groups, np.int32)
        below = np.tril_indices(len(steps))
        if not self._kept:
            return Similarity(np.zeros((0, 2, 0, len(groups)), np.uint8), steps, groups)
        parts = torch.stack(self._kept, 2).split(self._sizes, 3)  # [2, L, X, n, m] each
        codes = [
            [encode_drift(1 - _mean_cosine(layer)).cpu().numpy() for layer in p.unbind(1)]
            for p in parts
        ]
        whole = np.array(codes)[..., below[0], below[1]]  # [G, L, 2, pairs]
        return Similarity(np.ascontiguousarray(whole.transpose(3, 2, 1, 0)), steps, groups)

    def _project(self, last: LastValues, rows: Tensor) -> Tensor:
        """Sketches [2, L, n, m] float16 of the K and V last computed at `rows` [n]."""
        x = upcast(torch.stack([last.values[name].index_select(1, rows) for name in ("k", "v")]))
        if x.shape[-1] > WIDTH:
            if self._matrix is None:
                generator = torch.Generator().manual_seed(SEED)
                self._matrix = torch.randn(x.shape[-1], WIDTH, generator=generator).to(x)
            x = x @ self._matrix
        return F.normalize(x, dim=-1).half()


def _mean_cosine(sketches: Tensor) -> Tensor:
    """Mean cosine [2, X, X] over the positions of sketches [2, X, n, m]."""
    rows = F.normalize(sketches.float(), dim=-1).flatten(2)
    return rows @ rows.mT / sketches.shape[2]
