"""Fast-dLLM's block caches (arXiv 2505.22618, section 3.2; LLaDA-V's refresh interval)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from engine.cache.base import CachePolicy, Kinds, RunInfo, Speedups, StepPlan, StepView
from engine.cache.store import Site
from engine.config.knobs import knob
from engine.core.reasons import Reason
from engine.core.regions import refreshes_within, reuse_kind, window_kinds

REASONS = (
    Reason("this is the first step of the run in block {block}, and such a step recomputes every "
           "row", "full new_block"),
    Reason("every row is recomputed {every:refresh_interval} of a block, and this step is one of "
           "them", "full"),
    Reason("the row comes after the current block, and those rows are recomputed in every step",
           "!reused after_block"),
    Reason("the row belongs to the current block, which is recomputed in every step", "!reused"),
)  # fmt: skip


@dataclass
class BlockCache(CachePolicy):
    """K and V of all rows, refreshed at each block start and every `refresh_interval` steps."""

    paper = "arXiv 2505.22618"
    speedups = Speedups(
        static_rows=True, may_wait=True, sliding_window=True, capture_key=lambda policy: ()
    )

    refresh_interval: int | None = knob(
        None,
        1,
        1024,
        label="Refresh interval",
        optional=True,
        help="Number of steps of a block between full forwards; empty: only at its start.",
        search=(2, 3, 4, 5, 6, 8, 12, 16, 24, 32, None),
    )

    def begin_step(self, view: StepView) -> StepPlan:
        """All rows at a refresh, else the window."""
        if self._is_refresh(view):
            return StepPlan()
        return StepPlan(rows=self.window(view), kind="partial")

    def sites(self, run: RunInfo) -> tuple[Site, ...]:
        """K and V."""
        return Site("k"), Site("v")

    def logits_end(self, masked: np.ndarray, block: slice) -> np.ndarray:
        """The end of the block."""
        return np.full(len(masked), block.stop)

    @classmethod
    def exact(cls) -> BlockCache:
        """A refresh in every step."""
        return cls(refresh_interval=1)

    def planned(self, view: StepView, plan: StepPlan) -> Kinds:
        """All rows at a refresh, else the window."""
        if plan.kind == "full":
            return super().planned(view, plan)
        again = refreshes_within(view.block_step, self.refresh_interval, view.steps_left)
        later = bool(view.masked_host[:, view.block.stop :].any())
        return window_kinds(view.regions, self.window(view), reuse_kind(again or later))

    def window(self, view: StepView) -> slice:
        """Rows recomputed between refreshes."""
        raise NotImplementedError

    def _is_refresh(self, view: StepView) -> bool:
        every = self.refresh_interval
        return view.block_step == 0 or (every is not None and view.block_step % every == 0)


@dataclass
class PrefixCache(BlockCache):
    """Reuse all rows before the block; recompute the block and all rows after it."""

    name = "prefix"
    title = "Fast-dLLM prefix cache"
    summary = "Reuses the rows before the current block, recomputes the block and the rest."
    reasons = (
        *REASONS,
        Reason("the prefix cache reuses the rows before the current block; {times}"),
    )

    def window(self, view: StepView) -> slice:
        """The block and its suffix."""
        return slice(view.window_start, view.run.length)


@dataclass
class DualCache(BlockCache):
    """Reuse all rows outside the block, the masked suffix included."""

    name = "dual"
    title = "Fast-dLLM dual cache"
    summary = "Reuses the rows before and after the current block, recomputes only the block."
    reasons = (
        *REASONS,
        Reason("the dual cache reuses every row outside the current block; {times}"),
    )

    def window(self, view: StepView) -> slice:
        """The block."""
        return slice(view.window_start, view.block.stop)
