"""Tokens: a run's canvas on its device, and on the host as far as the host has been told.

Outlook: what a step is to decode, as far as that is known before its forward.

Underway: a step between the asking and the telling."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from engine.cache.base import CachePolicy, HostState, RunInfo, StepView
from engine.core.device import Clock, HostCopy, Mark, upload
from engine.core.events import StepEvent
from engine.core.rows import mark, pack_there, packed
from engine.generate import end_of_text
from engine.unmask.base import Unmasker


class CanvasState:
    """`canvas` [B, T] int64 and `open` [B, T] bool (masked positions) are kept on the device.

    `ids` and `masked` are the same on the host; they change when a step is told, which may be
    after the next has been asked for. Both pairs are changed in place.
    """

    def __init__(self, canvas: Tensor, masked: np.ndarray, device: torch.device) -> None:
        self._first = canvas.numpy().copy(), masked.copy()
        batch, self._length = canvas.shape
        # One column more takes what is not committed, so that no step depends on how many are.
        self._ids = torch.zeros(batch, self._length + 1, dtype=torch.int64, device=device)
        self._open = torch.zeros(batch, self._length + 1, dtype=torch.bool, device=device)
        self.canvas, self.open = self._ids[:, :-1], self._open[:, :-1]
        self.ids, self.masked = canvas.numpy().copy(), masked.copy()
        self.rewind()

    def rewind(self) -> None:
        """As before the first step."""
        for kept, mine, first in (
            (self.ids, self.canvas, self._first[0]),
            (self.masked, self.open, self._first[1]),
        ):
            kept[:] = first
            mine.copy_(upload(first, mine.device))

    def commit(self, needs: Tensor, chosen: Tensor, ids: Tensor) -> Tensor:
        """Put `ids` [B, n] at the `chosen` of the positions `needs`; on the device alone.

        Gives the positions [B, n], T where nothing was chosen.
        """
        places = needs.masked_fill(~chosen, self._length)
        self._ids.scatter_(1, places, ids)
        self._open.scatter_(1, places, False)
        return places

    def record(self, sequences: np.ndarray, positions: np.ndarray, ids: np.ndarray) -> None:
        """Note on the host what was committed on the device, one entry a token."""
        self.ids[sequences, positions] = ids
        self.masked[sequences, positions] = False

    def fill(self, mask: np.ndarray, token: int) -> None:
        """Put a token wherever `mask` [B, T] says, on both sides."""
        self.ids[mask], self.masked[mask] = token, False
        places = upload(mask, self.open.device)
        self.canvas.masked_fill_(places, token)
        self.open.masked_fill_(places, False)


@dataclass(frozen=True)
class StepViewBuilder:
    """Makes the views of a run's steps; `policy` is that of its first branch."""

    run: RunInfo
    tokens: CanvasState
    policy: CachePolicy
    rule: Unmasker

    def with_host_state(
        self,
        step: int,
        block: slice,
        block_index: int,
        block_step: int,
        noise: Sequence[torch.Generator],
    ) -> StepView:
        """The view of a step when the host knows all that was committed before it."""
        policy, masked, device = self.policy, self.tokens.masked.copy(), self.tokens.canvas.device
        rows = self.rule.rows(masked, block, policy.logits_end(masked, block))
        watched = policy.confidence_mask(step, masked, block)
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
            host_state=HostState(masked, needs),
            order=order,
        )

    def without_host_state(
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


@dataclass(frozen=True)
class PendingStep:
    """A step that the device has been asked for and the host has not been told of.

    `landing` brings the positions committed (T: none), the ids and the confidences, [B, n] each;
    `counts` [B] is how many are committed, where that is known beforehand; `marks` lie before the
    forward, after it and after the commit; `known` are the fields of its event known by now.
    """

    view: StepView
    landing: HostCopy
    counts: np.ndarray | None
    marks: tuple[Mark, Mark, Mark]
    known: dict[str, Any]

    def finalize(
        self, tokens: CanvasState, clock: Clock, end_of_text_policy: str, skips: bool
    ) -> StepEvent:
        """Wait for the step and note on the host what it did.

        `end_of_text_policy` is the end-of-text rule; `skips` says that a step may commit nothing. RuntimeError
        where it committed less than it must.
        """
        places, proposed, sure = self.landing.get()
        began = time.perf_counter()
        run, chosen = self.view.run, places < self.view.run.length
        self._check(chosen.sum(1), skips)
        sequences, columns = np.nonzero(chosen)
        positions, ids = places[sequences, columns], proposed[sequences, columns]
        confidence = sure[sequences, columns]
        tokens.record(sequences, positions, ids)
        info = run.info
        fill = end_of_text.ended_rows(
            end_of_text_policy, tokens.ids, tokens.masked, info.stop_ids, run.prompt_length
        )
        if fill.any():
            more, where = np.nonzero(fill)
            tokens.fill(fill, info.eos_id)
            sequences, positions = np.append(sequences, more), np.append(positions, where)
            ids = np.append(ids, np.full(len(more), info.eos_id))
            confidence = np.append(confidence, np.full(len(more), np.nan, np.float32))
        started, forwarded, decided = self.marks
        told_ms = (time.perf_counter() - began) * 1e3
        return StepEvent(
            sequences=sequences.astype(np.int32),
            positions=positions.astype(np.int32),
            ids=ids.astype(np.int32),
            confidence=confidence,
            masks_left=int(tokens.masked.sum()),
            forward_ms=clock.ms(started, forwarded),
            decide_ms=clock.ms(forwarded, decided) + told_ms,
            **self.known,
        )

    def _check(self, found: np.ndarray, skips: bool) -> None:
        short = self.counts is not None and (found != self.counts).any()
        idle = self.view.real_host.any(1) & (found == 0)
        if short or (idle.any() and not skips):
            raise RuntimeError("nothing could be committed; the logits may not be finite numbers")
