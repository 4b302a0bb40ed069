"""dKV-Cache: K and V are kept one step after their token is committed (arXiv 2505.15781)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from engine.cache.base import CachePolicy, Kinds, RunInfo, Speedups, StepPlan, StepView
from engine.cache.store import Site
from engine.config.knobs import knob
from engine.core.reasons import Reason
from engine.core.regions import refreshes_within, reuse_kind, window_kinds
from engine.core.rows import upload_mask


@dataclass
class DkvCache(CachePolicy):
    """Between reloads, K and V of known tokens come from the cache; state lasts one block.

    The variant `decode` recomputes the rows whose token was masked before the last commit: the
    masks, and the tokens decoded last. With a logit shift s, row j is reused once token j + s is
    known. The variant `greedy` recomputes the rows of the tokens decoded next, of those decoded
    last and of the nearest masks; it needs an order of commits that is known before the forward.
    """

    name = "dkv_cache"
    title = "dKV-Cache"
    paper = "arXiv 2505.15781"
    summary = "Reuses a token's keys and values from one step after it is committed."
    reasons = (
        Reason("this step is a reload, which recomputes every row; {times}", "full"),
        Reason("the row predicts no token that was known before the last commit",
               "!reused variant=decode"),
        Reason("the row predicts a token committed next or a mask near it, or its token was "
               "committed last", "!reused"),
        Reason("the token that the row predicts is known, so only reloads recompute the row; "
               "{times}", "variant=decode"),
        Reason("the row predicts none of the next tokens and no mask near them; {times}"),
    )  # fmt: skip
    speedups = Speedups(capture_key=lambda policy: ())

    variant: str = knob(
        "decode",
        choices=("decode", "greedy"),
        help="decode: recompute the rows of all masks; greedy: only those of the tokens that come "
        "next. Both recompute those of the tokens committed last.",
        search=("decode", "greedy"),
    )
    reload_interval: int = knob(
        8,
        1,
        1024,
        help="Number of steps of a block between full forwards; 1: plain decoding.",
        search=(2, 3, 4, 6, 8, 12, 16, 24, 32),
    )
    window: int = knob(
        4,
        0,
        1024,
        help="Greedy only: nearest masked positions recomputed with each next token.",
        search=(2, 4, 8),
    )

    def start(self, run: RunInfo) -> None:
        """No step was taken yet."""
        super().start(run)
        self._masked_before = np.zeros((run.batch, run.length), bool)

    def begin_step(self, view: StepView) -> StepPlan:
        """All rows at a reload, else those that the variant computes."""
        before, self._masked_before = self._masked_before, view.masked_host
        if self._reloads(view):
            return StepPlan()
        if self.variant == "decode":
            rows = _predicting(before, view.run.info.logit_shift, beyond=True)
        else:
            rows = self._greedy(before, view)
        return StepPlan(upload_mask(rows, view.canvas.device), kind="partial")

    def check(self, block_length: int, known_order: bool) -> None:
        """Refuse greedy if the order of commits depends on the logits."""
        if self.follows_order and not known_order:
            raise ValueError(
                "dkv_cache.variant: greedy computes only the tokens that come next, so it needs "
                "an order of commits that does not depend on the logits; choose unmasker quota "
                "with quota.score random, or variant decode"
            )

    def sites(self, run: RunInfo) -> tuple[Site, ...]:
        """K and V."""
        return Site("k"), Site("v")

    @property
    def follows_order(self) -> bool:
        """Greedy computes only the logits of the next tokens."""
        return self.variant == "greedy"

    @classmethod
    def exact(cls) -> DkvCache:
        """A reload in every step."""
        return cls(reload_interval=1)

    def planned(self, view: StepView, plan: StepPlan) -> Kinds:
        """All rows at a reload; else the rows of the block and after it that are not decoded."""
        if plan.kind == "full":
            return super().planned(view, plan)
        later = bool(view.masked_host[:, view.block.stop :].any())
        again = later or refreshes_within(view.block_step, self.reload_interval, view.steps_left)
        undecoded = slice(view.window_start, view.run.length)
        prompt, _, rest = window_kinds(view.regions, undecoded, reuse_kind(again))
        return prompt, "partial", "partial" if rest == "full" and self.follows_order else rest

    def _reloads(self, view: StepView) -> bool:
        second = view.block_step == 1 and self.variant == "decode"
        return second or view.block_step % self.reload_interval == 0

    def _greedy(self, before: np.ndarray, view: StepView) -> np.ndarray:
        """Rows [B, T] that predict the next tokens and their neighbours, and the last decoded."""
        taken = view.order_mask
        assert view.order is not None, "greedy needs a known order"
        assert taken is not None
        for row, masked, order in zip(taken, view.masked_host, view.order, strict=True):
            for position in order:
                free = np.flatnonzero(masked & ~row)
                near = np.abs(free - position).argsort(kind="stable")[: self.window]
                row[free[near]] = True
        return _predicting(taken, view.run.info.logit_shift) | (before & ~view.masked_host)


def _predicting(positions: np.ndarray, shift: int, beyond: bool = False) -> np.ndarray:
    """Rows [B, T] that predict `positions`; `beyond`: whether those past the canvas count."""
    rows = np.full_like(positions, beyond)
    rows[:, : positions.shape[1] - shift] = positions[:, shift:]
    return rows
