"""Outlook: what a step is to decode, as far as that is known before its forward."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from engine.cache.base import CachePolicy, RunInfo, StepView, Told
from engine.decode.base import Unmasker
from engine.host import upload
from engine.rows import mark, pack_there, packed
from engine.tokens import Tokens


@dataclass(frozen=True)
class Outlook:
    """Makes the views of a run's steps; `policy` is that of its first branch."""

    run: RunInfo
    tokens: Tokens
    policy: CachePolicy
    rule: Unmasker

    def told(
        self,
        step: int,
        block: slice,
        block_index: int,
        block_step: int,
        noise: Sequence[torch.Generator],
    ) -> StepView:
        """The view of a step when the host knows all that was committed before it."""
        policy, masked, device = self.policy, self.tokens.masked.copy(), self.tokens.canvas.device
        rows = self.rule.rows(masked, block, policy.edge(masked, block))
        watched = policy.watch(step, masked, block)
        eligible = rows if watched is None else rows & watched
        assert (eligible.any(1) == rows.any(1)).all(), "a policy left an open block out"
        order = self.rule.order(rows, block, block_step, noise, eligible)
        if order is not None and policy.follows_order:
            rows = mark(order, self.run.length)
        needs, real = packed(rows if watched is None else watched)
        if watched is not None:
            real &= np.take_along_axis(rows, needs, 1)
        needs = np.where(real.any(1, keepdims=True), needs, block.stop - 1)
        return StepView(
            run=self.run,
            step=step,
            block=block,
            block_index=block_index,
            block_step=block_step,
            canvas=self.tokens.canvas,
            masked=upload(masked, device),
            needs=upload(needs, device),
            real=upload(real, device),
            left=masked[:, block].sum(1),
            real_host=real,
            told=Told(masked, needs),
            order=order,
        )

    def untold(
        self, step: int, block: slice, block_index: int, block_step: int, left: np.ndarray
    ) -> StepView:
        """The view of a step when the host knows but how many masks, `left` [B], the block holds.

        For policies that are blind, and rules that commit within the block, in no order.
        """
        masked, device = self.tokens.open.clone(), self.tokens.canvas.device
        needs, real = pack_there(masked[:, block], left)
        needs = needs + block.start
        if not left.all():
            needs.masked_fill_(upload(left[:, None] == 0, device), block.stop - 1)
        return StepView(
            run=self.run,
            step=step,
            block=block,
            block_index=block_index,
            block_step=block_step,
            canvas=self.tokens.canvas,
            masked=masked,
            needs=needs,
            real=upload(real, device),
            left=left,
            real_host=real,
        )
