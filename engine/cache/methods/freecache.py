"""FreeCache: rows before the current block are frozen for good (arXiv 2505.21467, FlashDLM)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from engine.cache.base import CachePolicy, RunInfo, StepPlan, StepView
from engine.cache.store import Site
from engine.config.knobs import knob
from engine.core.device import upload
from engine.core.regions import covered
from engine.core.rows import ALL, Rows, pack


@dataclass
class FreeCache(CachePolicy):
    """One full forward, then only rows from the block of the frontier (the first mask) on.

    `clean` lets a finished block enter one step more, so that its last tokens are kept as what
    they became; `stale` freezes it at once and keeps them as masks, as released. Each sequence of
    a batch follows its own frontier. A finished sequence may wait: a window computed twice on one
    canvas is the same.
    """

    name = "freecache"
    title = "FreeCache"
    paper = "arXiv 2505.21467"
    summary = "Computes the whole canvas once; what lies before the current block is frozen."
    may_wait = True
    sliding_window = True

    block: int = knob(
        64, 1, 1024, help="Rows are frozen in blocks of this many positions of the answer."
    )
    freeze: str = knob(
        "clean",
        choices=("clean", "stale"),
        help="When a finished block is frozen: clean after one more step, stale at once.",
    )
    window: int | None = knob(
        None,
        1,
        4096,
        optional=True,
        help="Recompute only so many positions to the left and right of the last revealed one, "
        "and see nothing further right; empty: off. Replaces block and freeze.",
    )

    def check(self, block_length: int, known_order: bool) -> None:
        """Refuse a sliding window whose right edge may cut the block being decoded."""
        if self.window is not None and self.window <= block_length:
            raise ValueError(
                f"freecache.window: {self.window} does not hold a block of {block_length} "
                f"positions; the least valid value is {block_length + 1}"
            )

    def sites(self, run: RunInfo) -> tuple[Site, ...]:
        """K and V."""
        return Site("k"), Site("v")

    def start(self, run: RunInfo) -> None:
        """Nothing is frozen yet."""
        super().start(run)
        self._frontier = np.full(run.batch, run.prompt_length)
        self._fed = slice(0, run.length)

    def logits_end(self, masked: np.ndarray, block: slice) -> np.ndarray:
        """The window's right edge, in the first step too: what is revealed is computed once more.

        The whole canvas where nothing slides.
        """
        if self.window is None:
            return super().logits_end(masked, block)
        return np.minimum(_frontier(masked) - 1 + self.window, masked.shape[1])

    def capture_key(self) -> tuple[object, ...]:
        """Every row that enters is recomputed."""
        return ()

    def begin_step(self, view: StepView) -> StepPlan:
        """All rows once, then the window."""
        frontier = _frontier(view.masked_host)
        before, self._frontier = self._frontier, frontier
        if view.step == 0:
            return StepPlan()
        if self.window is not None:
            return self._sliding(view, frontier, self.window)
        settled = before if self.freeze == "clean" else frontier
        start = self.run.prompt_length
        starts = start + (settled - start) // self.block * self.block
        starts = starts - self.run.info.logit_shift
        rows = self._span(starts, np.full_like(starts, self.run.length), view)
        return StepPlan(rows, kind="partial")

    def planned(self, view: StepView) -> tuple[str, str, str]:
        """The window; what lies left of it is never computed again, what lies right of it is."""
        prompt, block, rest = covered(view.regions, self._fed, "frozen")
        ahead = rest == "frozen" and self._fed.stop < self.run.length
        return prompt, block, "reuse" if ahead else rest

    def _sliding(self, view: StepView, frontier: np.ndarray, width: int) -> StepPlan:
        """Rows [r - W, r + W) around the last revealed r, keys up to their right edge."""
        length, last = self.run.length, frontier - 1
        starts, stops = np.maximum(last - width, 0), np.minimum(last + width, length)
        edge, seen = int(stops.max()), None
        if (stops < edge).any():
            seen = upload(np.arange(length) < stops[:, None], view.canvas.device)
        keys = ALL if edge == length else slice(0, edge)
        return StepPlan(self._span(starts, stops, view), keys, seen, "partial")

    def _span(self, starts: np.ndarray, stops: np.ndarray, view: StepView) -> Rows:
        """Rows [start, stop) of each sequence: a slice where all agree, else an index."""
        self._fed = slice(int(starts[0]), int(stops[0]))
        if (starts == starts[0]).all() and (stops == stops[0]).all():
            return self._fed
        at = np.arange(view.run.length)
        return pack((at >= starts[:, None]) & (at < stops[:, None]), view.canvas.device)

    @classmethod
    def exact(cls) -> None:
        """No setting of its knobs makes it equal no cache on every canvas."""
        return None


def _frontier(masked: np.ndarray) -> np.ndarray:
    """First masked position of each sequence, [B]; the earliest of all where none is left."""
    first = np.where(masked.any(1), masked.argmax(1), masked.shape[1])
    return np.where(masked.any(1), first, first.min())
