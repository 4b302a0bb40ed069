"""Fast-dLLM's block caches (arXiv 2505.22618, section 3.2; LLaDA-V's refresh interval)."""

from __future__ import annotations

from dataclasses import dataclass

from engine.cache.base import CachePolicy, RunInfo, StepPlan, StepView
from engine.cache.store import Site
from engine.fields import knob


@dataclass
class BlockCache(CachePolicy):
    """K and V of all rows, renewed at each block start and every `refresh_interval` steps."""

    paper = "arXiv 2505.22618"
    waits = True

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

    def begin_step(self, view: StepView) -> StepPlan:
        """All rows at a refresh, else the window."""
        every = self.refresh_interval
        if view.block_step == 0 or (every and view.block_step % every == 0):
            return StepPlan()
        return StepPlan(rows=self.window(view), kind="partial")

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
