"""State of a step: the canvas on device and host, the view of a step, and a launched step."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from engine.cache.base import CachePolicy, HostState, RunInfo, StepView
from engine.core.device import Clock, HostCopy, Mark, upload
from engine.core.events import StepEvent
from engine.core.rows import from_device_mask, from_mask, positions_mask
from engine.generate import end_of_text
from engine.unmask.base import Unmasker
from engine.unmask.schedule import BlockProgress


def shared_progress(run: RunInfo) -> dict[int, BlockProgress]:
    """The progress of the first block if the prompt shares it; empty if it does not."""
    grid = run.grid
    return {grid.start: BlockProgress(grid.size, 0)} if grid.start < run.prompt_length else {}


class CanvasState:
    """Token ids [B, T] int64 and masked positions [B, T] bool of a run, on device and host.

    The device's are up to date with the last launched step, the host's with the last finalized
    one. All four are changed in place. `stop` [B] is the position from which on no more is decoded,
    T unless the run found a stop.
    """

    def __init__(self, canvas: Tensor, masked: np.ndarray, device: torch.device) -> None:
        self._initial = canvas.numpy().copy(), masked.copy()
        batch, self._length = canvas.shape
        # An extra column takes candidates that are not committed, so that shapes stay the same.
        self._ids = torch.zeros(batch, self._length + 1, dtype=torch.int64, device=device)
        self._masked = torch.zeros(batch, self._length + 1, dtype=torch.bool, device=device)
        self.device_ids, self.device_masked = self._ids[:, :-1], self._masked[:, :-1]
        self.host_ids, self.host_masked = canvas.numpy().copy(), masked.copy()
        self.stop = np.full(batch, self._length)
        self.reset()

    def reset(self) -> None:
        """Return to the state before the first step."""
        self.stop[:] = self._length
        for on_host, on_device, initial in (
            (self.host_ids, self.device_ids, self._initial[0]),
            (self.host_masked, self.device_masked, self._initial[1]),
        ):
            on_host[:] = initial
            on_device.copy_(upload(initial, on_device.device))

    @property
    def undecided(self) -> np.ndarray:
        """Masked positions [B, T] bool before the stop, on the host."""
        if (self.stop == self._length).all():
            return self.host_masked
        before: np.ndarray = np.arange(self._length) < self.stop[:, None]
        return self.host_masked & before

    def stop_at(self, positions: np.ndarray) -> None:
        """Decode nothing from `positions` [B] on."""
        self.stop[:] = positions

    def commit(self, positions: Tensor, chosen: Tensor, ids: Tensor) -> Tensor:
        """Write `ids` [B, n] to the `chosen` of `positions`, on the device only.

        Returns the positions written [B, n], T for those not chosen.
        """
        written = positions.masked_fill(~chosen, self._length)
        self._ids.scatter_(1, written, ids)
        self._masked.scatter_(1, written, False)
        return written

    def commit_on_host(self, sequences: np.ndarray, positions: np.ndarray, ids: np.ndarray) -> None:
        """Repeat a commit of the device on the host, one entry a token."""
        self.host_ids[sequences, positions] = ids
        self.host_masked[sequences, positions] = False

    def fill(self, mask: np.ndarray, token: int) -> None:
        """Write a token at every position of `mask` [B, T], on device and host."""
        self.host_ids[mask], self.host_masked[mask] = token, False
        device_mask = upload(mask, self.device_masked.device)
        self.device_ids.masked_fill_(device_mask, token)
        self.device_masked.masked_fill_(device_mask, False)


@dataclass
class StepViewBuilder:
    """Builds the StepView of a step; `policy` is that of the first branch."""

    run: RunInfo
    canvas: CanvasState
    policy: CachePolicy
    unmasker: Unmasker
    step: int
    block: slice
    block_index: int
    block_step: int

    def with_host_state(self, noise: Sequence[torch.Generator]) -> StepView:
        """The view if every earlier step is finalized."""
        policy, block = self.policy, self.block
        masked, undecided = self.canvas.host_masked.copy(), self.canvas.undecided.copy()
        ends = policy.logits_end(undecided, block)
        rows = self.unmasker.candidate_positions(undecided, block, ends)
        watched = policy.confidence_mask(self.step, masked, undecided, block)
        eligible = rows if watched is None else rows & watched
        assert (eligible.any(1) == rows.any(1)).all(), "a policy left an open block out"
        order = self.unmasker.planned_order(rows, block, self.block_step, noise, eligible)
        if order is not None and policy.follows_order:
            rows = positions_mask(order, self.run.length)
        needs, real = from_mask(rows if watched is None else watched)
        if watched is not None:
            real &= np.take_along_axis(rows, needs, 1)
        # A finished sequence reads the first row that another needs: a policy may plan no others.
        finished = ~real.any(1)
        needs[finished] = block.stop - 1 if finished.all() else needs[~finished].min()
        device, left = self.canvas.device_ids.device, undecided[:, block].sum(1)
        state = HostState(masked, needs, undecided)
        return self._build(upload(masked, device), upload(needs, device), real, left, state, order)

    def of_fill(self, rows: slice) -> StepView:
        """The view of a step that computes known rows and proposes nothing.

        Its only logits are those of the last of the rows.
        """
        masked, shift = self.canvas.host_masked.copy(), self.run.info.logit_shift
        needs = np.full((len(masked), 1), rows.stop - 1 + shift)
        state, left = HostState(masked, needs, masked), masked[:, self.block].sum(1)
        device = self.canvas.device_ids.device
        view = self._build(
            upload(masked, device), upload(needs, device), np.zeros(needs.shape, bool), left, state
        )
        return replace(view, fills=rows)

    def without_host_state(self, left: np.ndarray) -> StepView:
        """The view while the step before is pending; `left` [B] masks are in the block.

        Requires a policy with static rows, and an unmasker that commits within the block and has
        no planned order.
        """
        masked, block = self.canvas.device_masked.clone(), self.block
        needs, real = from_device_mask(masked[:, block], left)
        needs = needs + block.start
        if not left.all():
            needs.masked_fill_(upload(left[:, None] == 0, masked.device), block.stop - 1)
        return self._build(masked, needs, real, left)

    def _build(
        self,
        masked: Tensor,
        needs: Tensor,
        real: np.ndarray,
        left: np.ndarray,
        host_state: HostState | None = None,
        order: tuple[np.ndarray, ...] | None = None,
    ) -> StepView:
        return StepView(
            run=self.run,
            step=self.step,
            block=self.block,
            block_index=self.block_index,
            block_step=self.block_step,
            canvas=self.canvas.device_ids,
            masked=masked,
            needs=needs,
            real=upload(real, masked.device),
            left=left,
            real_host=real,
            host_state=host_state,
            order=order,
        )


@dataclass(frozen=True)
class PendingStep:
    """A launched step whose results are not on the host yet.

    `results` are the positions committed (T: none), the ids and the confidences, [B, n] each;
    `counts` [B] the number of tokens committed, if known in advance; `marks` the times before the
    forward, after it and after the commit; `event_fields` the known fields of its StepEvent.
    """

    view: StepView
    results: HostCopy
    counts: np.ndarray | None
    marks: tuple[Mark, Mark, Mark]
    event_fields: dict[str, Any]

    def finalize(
        self, canvas: CanvasState, clock: Clock, end_of_text_rule: str, may_commit_nothing: bool
    ) -> StepEvent:
        """Wait for the results, update the host's canvas and apply the end-of-text rule.

        Raises RuntimeError if fewer tokens were committed than the step has to commit, or one whose
        confidence is no number.
        """
        written, proposed, confidences = self.results.get()
        began = time.perf_counter()
        run, chosen = self.view.run, written < self.view.run.length
        sequences, columns = np.nonzero(chosen)
        positions, ids = written[sequences, columns], proposed[sequences, columns]
        confidence = confidences[sequences, columns]
        self._check(chosen.sum(1), confidence, may_commit_nothing)
        canvas.commit_on_host(sequences, positions, ids)
        info = run.info
        fill = end_of_text.positions_to_fill(
            end_of_text_rule, canvas.host_ids, canvas.host_masked, info.stop_ids, run.prompt_length,
            self.view.block.stop if info.block_causal else None,
        )  # fmt: skip
        if fill.any():
            rows, filled = np.nonzero(fill)
            canvas.fill(fill, info.fill_id)
            sequences, positions = np.append(sequences, rows), np.append(positions, filled)
            ids = np.append(ids, np.full(len(filled), info.fill_id))
            confidence = np.append(confidence, np.full(len(filled), np.nan, np.float32))
        started, forwarded, decided = self.marks
        host_ms = (time.perf_counter() - began) * 1e3
        return StepEvent(
            sequences=sequences.astype(np.int32),
            positions=positions.astype(np.int32),
            ids=ids.astype(np.int32),
            confidence=confidence,
            masks_left=int(canvas.host_masked.sum()),
            forward_ms=clock.ms(started, forwarded),
            decide_ms=clock.ms(forwarded, decided) + host_ms,
            **self.event_fields,
        )

    def _check(
        self, committed: np.ndarray, confidence: np.ndarray, may_commit_nothing: bool
    ) -> None:
        too_few = self.counts is not None and (committed != self.counts).any()
        nothing = self.view.real_host.any(1) & (committed == 0)
        if too_few or (nothing.any() and not may_commit_nothing):
            raise RuntimeError("nothing could be committed; the logits may not be finite numbers")
        if np.isnan(confidence).any():
            raise RuntimeError("a token has no probability; the logits are not finite numbers")
