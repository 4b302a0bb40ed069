"""FreeCache and the caches of guided decoding as FlashDLM released them (arXiv 2505.21467).

The released cache has rows of its own: a call writes its keys and values from a row on that the
call before set, whatever positions it feeds. If the window has moved since, tokens are stored in
rows before their own. `ShiftedWindow` holds the shifts of a call, `ShiftedStore` and
`ShiftedAdapter` apply them; tests.compat.flashdlm runs them in the engine's own loop.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from torch import Tensor

from engine.cache.base import RunInfo, Speedups, StepPlan, StepView
from engine.cache.methods.freecache import FreeCache
from engine.core.rows import Rows
from engine.models.base import ModelAdapter
from tests.compat.loops import PolicyStore


def shifted(rows: Rows, by: int) -> Rows:
    """Rows, `by` rows further left."""
    if by == 0:
        return rows
    if isinstance(rows, slice):
        return slice(rows.start - by, rows.stop - by)
    assert isinstance(rows, Tensor), "only windows and parts of them are shifted"
    return rows - by


class ShiftedWindow(FreeCache):
    """A window whose rows are stored `row_shift` rows, and rotated `turn_shift` rows, too early.

    `rotates_by_row`: a row is rotated by its place in the cache, not by its token's position.
    """

    speedups = Speedups(may_wait=True)  # without a capture key: the shifts change between steps
    rotates_by_row = True

    def start(self, run: RunInfo) -> None:
        """Nothing is shifted yet."""
        super().start(run)
        self.row_shift = self.turn_shift = 0

    def place(self, rows: slice, first_row: int) -> StepPlan:
        """Feed `rows`, written from `first_row` on; what lies behind them is not attended to."""
        self.row_shift = rows.start - first_row
        self.turn_shift = self.row_shift if self.rotates_by_row else 0
        return StepPlan(rows, slice(0, rows.stop - self.row_shift), kind="partial")


class ReleasedFreeCache(ShiftedWindow):
    """FreeCache as released if a block has one step, or more steps than masks.

    With one step, the first call is also the last of its block, which should freeze the block; but
    it freezes the prompt only. The second block is therefore stored a block too early. With more
    steps than masks, a block is fed until its last step, although it holds no mask any more.
    """

    def begin_step(self, view: StepView) -> StepPlan:
        """The current block and all behind it."""
        if view.step == 0:
            return StepPlan()
        rows = slice(view.window_start, self.run.length)
        first_block_unfrozen = view.step == 1 and view.block_index == 1
        return self.place(rows, rows.start - (self.block if first_block_unfrozen else 0))


class PromptWindow(ShiftedWindow):
    """Guided decoding's default: all rows of the prompt are computed once, its last one too."""

    def begin_step(self, view: StepView) -> StepPlan:
        """The whole answer after the first step."""
        start, length = self.run.prompt_length, self.run.length
        return StepPlan() if view.step == 0 else self.place(slice(start, length), start)


class MovingWindow(ShiftedWindow):
    """A window around the last revealed token, written where the call before ended its freezing."""

    def begin_step(self, view: StepView) -> StepPlan:
        """All rows once, then the window."""
        last = int(view.masked_host[0].argmax()) - 1
        first_row, self._frozen = self._frozen, self.frozen_after(last, view.step)
        return StepPlan() if view.step == 0 else self.place(self.fed(last), first_row)

    def start(self, run: RunInfo) -> None:
        """Nothing is frozen yet."""
        super().start(run)
        self._frozen = 0

    def fed(self, last: int) -> slice:
        """The rows of a call, given the last revealed position before it."""
        raise NotImplementedError

    def frozen_after(self, last: int, call: int) -> int:
        """The rows that a call freezes."""
        raise NotImplementedError


class SlidingWindow(MovingWindow):
    """`use_sliding_window_caching`: `window` positions on either side of the last revealed one."""

    def fed(self, last: int) -> slice:
        """The window, cut at both ends of the canvas."""
        return slice(max(0, last - self.window), min(self.run.length, last + self.window))

    def frozen_after(self, last: int, call: int) -> int:
        """All rows left of the window."""
        return max(0, last - self.window)

    def logits_end(self, masked: np.ndarray, block: slice) -> np.ndarray:
        """The window's right edge; the first call drafts the whole answer."""
        if masked[0, self.run.prompt_length]:
            return np.full(len(masked), masked.shape[1])
        return super().logits_end(masked, block)


class LastTokenWindow(MovingWindow):
    """`aggressive_caching`: from the last revealed token on."""

    def fed(self, last: int) -> slice:
        """The last revealed token and all behind it."""
        return slice(last, self.run.length)

    def frozen_after(self, last: int, call: int) -> int:
        """All rows up to the last revealed token; the prompt after the first call."""
        return last + 1 if call else self.run.prompt_length


class ShiftedStore(PolicyStore):
    """An activation store that writes the keys and values of a ShiftedWindow."""

    def write(
        self, layer: int, name: str, rows: Rows, values: Tensor, idle: Tensor | None = None
    ) -> None:
        """Write `row_shift` rows further left."""
        super().write(layer, name, shifted(rows, self.policy.row_shift), values, idle)


class ShiftedAdapter:
    """An adapter that rotates q and k by `turn_shift` rows too little."""

    def __init__(self, inner: ModelAdapter, policy: Any) -> None:
        self._inner, self._policy = inner, policy

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def project(
        self, layer: int, names: str, x: Tensor, rows: Rows, length: int, heads: slice | None = None
    ) -> tuple[Tensor, ...]:
        """As the inner adapter, at shifted rows."""
        rows = shifted(rows, self._policy.turn_shift)
        return self._inner.project(layer, names, x, rows, length, heads)
