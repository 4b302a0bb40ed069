"""dKV-Cache: K and V are kept one step after their token is decoded (arXiv 2505.15781)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from engine.cache.base import CachePolicy, RunInfo, StepPlan, StepView
from engine.cache.store import Site
from engine.config.knobs import knob
from engine.core.regions import covered, kept, renews
from engine.core.rows import pack


@dataclass
class DkvCache(CachePolicy):
    """Between reloads, K and V of known tokens come from the cache; state lasts one block.

    `decode` computes the rows whose token was open before the last commit: masks, and what was
    decoded last, once more as what it became. With a logit shift s, row j is kept once token
    j + s is known. `greedy` computes what is decoded next, what was decoded last and the nearest
    masked positions; it follows an order of reveal that is known beforehand.
    """

    name = "dkv_cache"
    title = "dKV-Cache"
    paper = "arXiv 2505.15781"
    summary = "Keeps a token's keys and values from one step after it is decoded."

    variant: str = knob(
        "decode",
        choices=("decode", "greedy"),
        help="decode recomputes all that is not decoded yet, greedy only what comes next.",
    )
    reload_interval: int = knob(
        8, 1, 1024, help="Full forward every so many steps of a block; 1 is plain decoding."
    )
    window: int = knob(
        4, 0, 1024, help="Greedy only: nearest masked positions recomputed with each next token."
    )

    @property
    def follows_order(self) -> bool:
        """Greedy computes no other logits than those of the next tokens."""
        return self.variant == "greedy"

    def check(self, block_length: int, known_order: bool) -> None:
        """Refuse greedy where nobody knows what comes next."""
        if self.follows_order and not known_order:
            raise ValueError(
                "dkv_cache.variant: greedy computes only the tokens that come next, so it needs "
                "an order of reveal that does not depend on the logits; choose unmasker quota "
                "with quota.score random, or variant decode"
            )

    def sites(self, run: RunInfo) -> tuple[Site, ...]:
        """K and V."""
        return Site("k"), Site("v")

    def start(self, run: RunInfo) -> None:
        """No step was taken yet."""
        super().start(run)
        self._open = np.zeros((run.batch, run.length), bool)

    def capture_key(self) -> tuple[object, ...]:
        """Every row that enters is recomputed."""
        return ()

    def begin_step(self, view: StepView) -> StepPlan:
        """All rows at a reload, else those that the variant computes."""
        before, self._open = self._open, view.masked_host
        if self._reloads(view):
            return StepPlan()
        if self.variant == "decode":
            rows = _predicting(before, view.run.info.logit_shift, beyond=True)
        else:
            rows = self._greedy(before, view)
        return StepPlan(pack(rows, view.canvas.device), kind="partial")

    def planned(self, view: StepView) -> tuple[str, str, str]:
        """Everything at a reload; else of the block and what follows it the rows still open."""
        if self._reloads(view):
            return super().planned(view)
        later = view.block.stop < view.run.length
        again = later or renews(view.block_step, self.reload_interval, view.steps_left)
        open_rows = slice(view.window_start, view.run.length)
        prompt, _, rest = covered(view.regions, open_rows, kept(again))
        return prompt, "partial", "partial" if rest == "full" and self.follows_order else rest

    def _reloads(self, view: StepView) -> bool:
        second = view.block_step == 1 and self.variant == "decode"
        return second or view.block_step % self.reload_interval == 0

    def _greedy(self, before: np.ndarray, view: StepView) -> np.ndarray:
        """Rows [B, T] that predict the next tokens and their neighbours, and the last decoded."""
        taken = view.due
        assert view.order is not None, "greedy needs a known order"
        assert taken is not None
        for row, masked, order in zip(taken, view.masked_host, view.order, strict=True):
            for position in order:
                free = np.flatnonzero(masked & ~row)
                near = np.abs(free - position).argsort(kind="stable")[: self.window]
                row[free[near]] = True
        return _predicting(taken, view.run.info.logit_shift) | (before & ~view.masked_host)

    @classmethod
    def exact(cls) -> DkvCache:
        """A reload in every step."""
        return cls(reload_interval=1)


def _predicting(positions: np.ndarray, shift: int, beyond: bool = False) -> np.ndarray:
    """Rows [B, T] that predict `positions`; `beyond` says whether those past the canvas count."""
    rows = np.full_like(positions, beyond)
    rows[:, : positions.shape[1] - shift] = positions[:, shift:]
    return rows
