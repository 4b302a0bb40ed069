"""FlashDLM's loops as released (arXiv 2505.21467): steps, ends of text, Dream's schedule."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

import numpy as np
import torch

from engine.cache.base import RunInfo
from engine.core.events import StepEvent
from engine.generate.guidance import GuidanceBranch
from engine.generate.job import Job
from engine.generate.step_state import PendingStep
from engine.unmask.methods.dream import Dream
from engine.unmask.schedule import BlockProgress, DreamSchedule
from tests.compat.freecache import ShiftedAdapter, ShiftedStore
from tests.compat.loops import IdlingDenoiser

# (ids [T], masked [T], last committed position) -> positions [T] that become ends of text.
EndOfText = Callable[[np.ndarray, np.ndarray, int], np.ndarray]


class ReleasedDenoiser(IdlingDenoiser):
    """A run of one sequence that takes every step of every block and ends as `end_of_text` says.

    A step of a block without masks commits nothing; with an end-of-text rule, no step follows once
    the canvas has no mask. The rows of a ShiftedWindow are stored where the release stores them.
    """

    def __init__(self, job: Job, end_of_text: EndOfText | None = None) -> None:
        super().__init__(job)
        self._end_of_text, self._last = end_of_text, -1
        self._steps = job.spec.steps // job.spec.blocks

    def finalize(self, step: PendingStep) -> StepEvent:
        """Finalize a step, apply the end-of-text rule and run the steps without masks."""
        event, view = super().finalize(step), step.view
        self._last = max(self._last, *event.positions.tolist(), -1)
        if self._end_of_text is not None:
            event = self._ended(event)
        if not self.masks_left(view.block).any():
            for block_step in range(view.block_step + 1, self._steps):
                if self._end_of_text is None or self.masked.any():
                    self.idle(view.block, view.block_index, block_step)
        return event

    def _ended(self, event: StepEvent) -> StepEvent:
        assert self._end_of_text is not None
        mask = self._end_of_text(self.ids[0], self.masked[0], self._last)
        filled = np.flatnonzero(mask & self.masked[0]).astype(np.int32)
        self._canvas.fill(mask[None], self.run.info.eos_id)
        return replace(event, positions=np.append(event.positions, filled))

    def _branch(self, index: int) -> GuidanceBranch:
        branch = super()._branch(index)
        if not hasattr(branch.policy, "row_shift"):
            return branch
        return self.with_store(branch, ShiftedStore, ShiftedAdapter)


def overwrite_after_first(eos_id: int) -> EndOfText:
    """LLaDA's `early_stop`: all behind the first end, prompt and committed tokens included."""

    def positions(ids: np.ndarray, masked: np.ndarray, last: int) -> np.ndarray:
        ends = np.flatnonzero(ids == eos_id)
        return np.arange(len(ids)) > (ends[0] if len(ends) else len(ids))

    return positions


def fill_after_run(eos_id: int, count: int) -> EndOfText:
    """Dream's `early_stop`: all masks, once no mask is left of `count` ends at the last token."""

    def positions(ids: np.ndarray, masked: np.ndarray, last: int) -> np.ndarray:
        until = slice(0, last + 1)
        ended = last + 1 >= count and bool((ids[until][-count:] == eos_id).all())
        ended = ended and last >= 0 and ids[last] == eos_id and not masked[until].any()
        return masked & ended

    return positions


class RunSchedule(DreamSchedule):
    """Dream's schedule over a run of blocks instead of each block.

    A step takes its fraction of the block's masks and all positions behind the block; the last
    step of a block takes the rest of the block.
    """

    def __init__(self, run: RunInfo, steps: int, eps: float) -> None:
        super().__init__(steps, {}, eps)
        self._run, blocks = run, run.gen_length // run.block_length
        self._times = torch.linspace(1, eps, steps * blocks + 1).numpy()

    def tokens_due(self, left: np.ndarray, block: slice, step: int) -> np.ndarray:
        """Tokens [B] to commit in a step of a block; `left` [B] are the block's masks."""
        if step == self.steps - 1:
            return left
        index = (block.start - self._run.prompt_length) // self._run.block_length
        now = index * self.steps + step
        masks = (left + self._run.length - block.stop).astype(np.float32)
        return (masks * (1 - self._times[now + 1] / self._times[now])).astype(np.int64)


class ReleasedDream(Dream):
    """Dream's sampler with the schedule of FlashDLM's blocks."""

    def start(
        self,
        run: RunInfo,
        steps_per_block: int | None,
        progress: Mapping[int, BlockProgress] | None = None,
    ) -> None:
        """Use the schedule over the run."""
        super().start(run, steps_per_block, progress)
        assert steps_per_block is not None
        self.block_schedule = RunSchedule(run, steps_per_block, self.eps)
