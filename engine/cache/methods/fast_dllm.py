"""Fast-dLLM's block caches (arXiv 2505.22618, section 3.2; LLaDA-V's refresh interval)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from engine.cache.base import CachePolicy, RunInfo, StepPlan, StepView
from engine.cache.store import Site
from engine.config.knobs import knob
from engine.core.regions import covered, kept, renews


@dataclass
class BlockCache(CachePolicy):
    """K and V of all rows, renewed at each block start and every `refresh_interval` steps."""

    paper = "arXiv 2505.22618"
    may_wait = True
    sliding_window = True
    static_rows = True

    refresh_interval: int | None = knob(
        None,
        1,
        1024,
        label="Refresh interval",
        optional=True,
        help="Full forward every so many steps of a block; empty: only at its start.",
    )

    def sites(self, run: RunInfo) -> tuple[Site, ...]:
        """K and V."""
        return Site("k"), Site("v")

    def logits_end(self, masked: np.ndarray, block: slice) -> np.ndarray:
        """The block's end: what lies behind it is renewed when its turn comes."""
        return np.full(len(masked), block.stop)

    def capture_key(self) -> tuple[object, ...]:
        """Every row that enters is recomputed."""
        return ()

    def begin_step(self, view: StepView) -> StepPlan:
        """All rows at a refresh, else the window."""
        if self._due(view):
            return StepPlan()
        return StepPlan(rows=self.window(view), kind="partial")

    def planned(self, view: StepView) -> tuple[str, str, str]:
        """Everything at a refresh, else the window."""
        if self._due(view):
            return super().planned(view)
        again = renews(view.block_step, self.refresh_interval, view.steps_left)
        later = view.block.stop < view.run.length
        return covered(view.regions, self.window(view), kept(again or later))

    def _due(self, view: StepView) -> bool:
        every = self.refresh_interval
        return view.block_step == 0 or (every is not None and view.block_step % every == 0)

    def window(self, view: StepView) -> slice:
        """Rows recomputed between refreshes."""
        raise NotImplementedError

    @classmethod
    def exact(cls) -> BlockCache:
        """A refresh in every step."""
        return cls(refresh_interval=1)


@dataclass
class PrefixCache(BlockCache):
    """Reuse everything before the block; the block and all after it are recomputed."""

    name = "prefix"
    title = "Fast-dLLM prefix cache"
    summary = "Keeps what stands before the current block, recomputes the block and the rest."

    def window(self, view: StepView) -> slice:
        """The block and its suffix."""
        return slice(view.window_start, view.run.length)


@dataclass
class DualCache(BlockCache):
    """Reuse everything but the block, the masked suffix included."""

    name = "dual"
    title = "Fast-dLLM dual cache"
    summary = "Keeps what stands before and after the current block, recomputes only the block."

    def window(self, view: StepView) -> slice:
        """The block."""
        return slice(view.window_start, view.block.stop)
