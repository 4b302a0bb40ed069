"""FreeCache: rows before the current block are frozen for good (arXiv 2505.21467, FlashDLM)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from engine.cache.base import (
    CachePolicy,
    Kinds,
    ModelInfo,
    RunInfo,
    Speedups,
    StepPlan,
    StepView,
)
from engine.cache.store import Site
from engine.config.knobs import knob
from engine.core.device import upload
from engine.core.reasons import Reason
from engine.core.regions import window_kinds
from engine.core.rows import ALL, Rows, upload_mask


@dataclass
class FreeCache(CachePolicy):
    """One full forward, then only the rows from the block of the frontier (the first mask) on.

    With `freeze` clean a finished block enters one more step, so that the K and V of its last
    tokens are those of the tokens; with stale, as released, they stay those of the masks. Each
    sequence of a batch follows its own frontier. A finished sequence may wait, because a window
    that is recomputed on an unchanged canvas gives the same K and V.
    """

    name = "freecache"
    title = "FreeCache"
    paper = "arXiv 2505.21467"
    summary = "Computes the whole canvas once; rows before the current block are frozen."
    reasons = (
        Reason("FreeCache computes the whole canvas once, in the first step of a run",
               "first_step"),
        Reason("the row is not frozen: the rows from the block of the first mask on are "
               "recomputed in every step, and those of a finished block once more",
               "!reused window= freeze=clean"),
        Reason("the row is not frozen: the rows from the block of the first mask on are "
               "recomputed in every step", "!reused window="),
        Reason("the row is inside the window around the first mask", "!reused"),
        Reason("the row is outside the window around the first mask; {times}", "after_block"),
        Reason("FreeCache has frozen the row, because it is before the block of the first mask; "
               "{times}", "window="),
        Reason("FreeCache has frozen the row, because it is before the window around the first "
               "mask; {times}"),
    )  # fmt: skip
    speedups = Speedups(may_wait=True, sliding_window=True, capture_key=lambda policy: ())

    block: int = knob(
        64,
        1,
        1024,
        help="Number of answer positions in a block that is frozen together.",
        search=(4, 8, 12, 16, 24, 32, 48, 64),
    )
    freeze: str = knob(
        "clean",
        choices=("clean", "stale"),
        help="When a finished block is frozen. clean: after one more step; stale: at once.",
        search=("clean", "stale"),
    )
    window: int | None = knob(
        None,
        1,
        4096,
        optional=True,
        help="Number of positions on either side of the last committed one that are recomputed; "
        "positions further right are not attended to. Empty: off. Replaces block and freeze.",
    )

    def start(self, run: RunInfo) -> None:
        """Nothing is frozen yet."""
        super().start(run)
        self._frontier = np.full(run.batch, run.prompt_length)
        self._computed = slice(0, run.length)

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

    @classmethod
    def exact(cls) -> FreeCache:
        """A sliding window over the whole canvas."""
        return cls(window=4096)

    def rows_by_order(self, info: ModelInfo, block_length: int) -> bool:
        """The frontier moves within a block, unless whole blocks of the run are frozen."""
        return self.window is not None or self.block % block_length != 0

    def logits_end(self, masked: np.ndarray, block: slice) -> np.ndarray:
        """The window's right edge, in the first step too; without a window the whole canvas.

        Every committed token is then computed once more.
        """
        if self.window is None:
            return super().logits_end(masked, block)
        return np.minimum(_frontier(masked) - 1 + self.window, masked.shape[1])

    def planned(self, view: StepView, plan: StepPlan) -> Kinds:
        """The window; rows left of it are never recomputed, rows right of it are later."""
        prompt, block, rest = window_kinds(view.regions, self._computed, "frozen")
        ahead = rest == "frozen" and self._computed.stop < self.run.length
        return prompt, block, "reuse" if ahead else rest

    def _sliding(self, view: StepView, frontier: np.ndarray, width: int) -> StepPlan:
        """Rows [r - W, r + W) around the last revealed r, keys up to their right edge."""
        length, last = self.run.length, frontier - 1
        starts, stops = np.maximum(last - width, 0), np.minimum(last + width, length)
        edge, visible = int(stops.max()), None
        if (stops < edge).any():
            visible = upload(np.arange(length) < stops[:, None], view.canvas.device)
        keys = ALL if edge == length else slice(0, edge)
        return StepPlan(self._span(starts, stops, view), keys, visible, "partial")

    def _span(self, starts: np.ndarray, stops: np.ndarray, view: StepView) -> Rows:
        """Rows [start, stop) of each sequence: a slice if all agree, else an index."""
        self._computed = slice(int(starts[0]), int(stops[0]))
        if (starts == starts[0]).all() and (stops == stops[0]).all():
            return self._computed
        at = np.arange(view.run.length)
        return upload_mask((at >= starts[:, None]) & (at < stops[:, None]), view.canvas.device)


def _frontier(masked: np.ndarray) -> np.ndarray:
    """First masked position of each sequence, [B]; a finished one gets the least of the others."""
    first = np.where(masked.any(1), masked.argmax(1), masked.shape[1])
    return np.where(masked.any(1), first, first.min())
