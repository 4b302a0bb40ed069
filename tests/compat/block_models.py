"""SDAR and Fast-dLLM v2 as released: the last commit call, ends of text, equal ranks, kept keys.

Both loops make a commit call after the last block too. SDAR's stops after a block that leaves a
stop token anywhere behind the prompt, and later masks stay. Fast-dLLM v2's two loops differ:
`batch_sample` finishes the block in which a stop token was unmasked and pads what follows the
first one, `generate` leaves at once when no mask precedes one in the block, and cuts the text.

SDAR ranks with torch.topk, which orders equal confidences in a way of its own. A distribution that
top-k and top-p filter to one token has confidence 1, so that equal ones are common.
"""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import numpy as np
from torch import Tensor

from engine.cache.base import StepPlan, StepView
from engine.cache.methods.frozen import SubBlock
from engine.core.events import StepEvent
from engine.generate.guidance import GuidanceBranch
from engine.generate.job import Job
from engine.generate.step_state import PendingStep
from engine.unmask.base import Candidates, Unmasker
from engine.unmask.methods.dynamic import Dynamic
from engine.unmask.methods.quota import Quota
from tests.compat.loops import IdlingDenoiser, PolicyStore
from tests.compat.samplers import TopkOrder


class ReleasedLoop(IdlingDenoiser):
    """A run of one sequence that may end before its canvas does; `stop_id` is the only stop token.

    `ended_at` is the length of the returned text, None for the whole canvas.
    """

    def __init__(self, job: Job, stop_id: int | None) -> None:
        self.ended = False
        self.ended_at: int | None = None
        self._stop_id = stop_id
        super().__init__(job)

    def masks_left(self, block: slice) -> np.ndarray:
        """None once the run has ended."""
        left = super().masks_left(block)
        return np.zeros_like(left) if self.ended else left

    def stops(self, part: slice) -> np.ndarray:
        """Whether each position of a part of the canvas holds a known stop token."""
        if self._stop_id is None:
            return np.zeros(part.stop - part.start, bool)
        return (self.ids[0, part] == self._stop_id) & ~self.masked[0, part]

    def finishes(self, step: PendingStep) -> bool:
        """Whether a step has left its block without masks."""
        return step.view.fills is None and not self.masked[0, step.view.block].any()


class SdarLoop(ReleasedLoop):
    """SDAR's `block_diffusion_generate`, with the likeliest token in place of each draw.

    Confidences are those of the tempered distribution.
    """

    def __init__(self, job: Job, stop_id: int | None, temperature: float) -> None:
        self._temperature = temperature
        super().__init__(job, stop_id)

    def finalize(self, step: PendingStep) -> StepEvent:
        """Finalize a step; the last commit call, after the last block or one with a stop token."""
        event, view = super().finalize(step), step.view
        if self.finishes(step):
            stopped = self.stops(slice(self.run.prompt_length, self.run.length)).any()
            if stopped or view.block.stop == self.run.length:
                after = slice(view.block.stop, view.block.stop + self.run.block_length)
                self.idle(after, view.block_index + 1, 0, view.block)
                self.ended = True
        return event

    def _candidates(self, logits: Tensor, view: StepView) -> Candidates:
        return super()._candidates(logits / self._temperature, view)


class TopkQuota(TopkOrder, Quota):
    """SDAR's low_confidence_static, which ranks the rows of the block."""

    cache = "dual"


class TopkDynamic(TopkOrder, Dynamic):
    """SDAR's low_confidence_dynamic, and its low_confidence_static with a filter."""

    cache = "dual"


def ranked_by_topk(unmasker: Unmasker) -> Unmasker:
    """The unmasker as SDAR runs it."""
    kind = {Quota: TopkQuota, Dynamic: TopkDynamic}.get(type(unmasker))
    return unmasker if kind is None else kind(**asdict(unmasker))


class BatchSampleLoop(ReleasedLoop):
    """Fast-dLLM v2's `batch_sample`: the last commit call gives one more token."""

    def __init__(self, job: Job, stop_id: int | None, length: int) -> None:
        super().__init__(job, stop_id)
        self._length, self._marked = length, False

    def finalize(self, step: PendingStep) -> StepEvent:
        """Finalize a step and test for a stop token that it unmasked."""
        event, view = super().finalize(step), step.view
        first = int(view.needs_host[0, 0]) == view.block.start
        self._marked |= not first and self._stop_id in event.ids.tolist()
        if self.finishes(step) and self._marked:
            self._pad(view.block)
            self.ended, self.ended_at = True, view.block.stop
        if not self.masked[0, : self._length].any():
            self.ended = True
        return event

    def _pad(self, block: slice) -> None:
        """Replace what follows the first stop token by the pad token."""
        start, pad = self.run.prompt_length, self.run.info.pad_id
        first = start + int(self.stops(slice(start, block.stop)).argmax())
        self._canvas.host_ids[0, first + 1 : block.stop] = pad


class CarriedSubBlock(SubBlock):
    """Fast-dLLM v2's `generate`: a block begins with the keys kept of the block before.

    So the first step of a block computes its first sub-block only, except in the first block.
    `carries` tells a CarryingStore that the step computes a finished block for good.
    """

    carries = False

    def begin_step(self, view: StepView) -> StepPlan:
        """The plan of the base class in the middle of a block."""
        later = self._block_fed >= 0
        if later:
            self._block_fed = view.block.start
        plan = super().begin_step(view)
        assert isinstance(plan.rows, slice)
        self.carries = later and plan.rows.stop <= view.block.start
        return plan


class CarryingStore(PolicyStore):
    """Copies K and V of a finished block to the next one before the final ones replace them."""

    def write(
        self, layer: int, name: str, rows: Any, values: Tensor, idle: Tensor | None = None
    ) -> None:
        """Write after the copy, if there is a next block."""
        after = slice(rows.stop, 2 * rows.stop - rows.start)
        if self.policy.carries and after.stop <= self._length:
            kept = self.read(layer, name, rows).transpose(1, 2).clone()
            super().write(layer, name, after, kept)
        super().write(layer, name, rows, values, idle)


class GenerateLoop(ReleasedLoop):
    """Fast-dLLM v2's `generate`."""

    def __init__(self, job: Job, stop_id: int | None, length: int) -> None:
        super().__init__(job, stop_id)
        self._length = length

    def _branch(self, index: int) -> GuidanceBranch:
        branch = super()._branch(index)
        carries = hasattr(branch.policy, "carries")
        return self.with_store(branch, CarryingStore) if carries else branch

    def finalize(self, step: PendingStep) -> StepEvent:
        """Finalize a step and test for a settled stop token in its block."""
        event, view = super().finalize(step), step.view
        part = slice(max(view.block.start, self.run.prompt_length), view.block.stop)
        stops = self.stops(part)
        first = int(stops.argmax())
        if stops.any() and not self.masked[0, part][:first].any():
            self.ended, self.ended_at = True, part.start + first + 1
        if not self.masked[0, : self._length].any():
            self.ended = True
        return event


class Llada2Loop(ReleasedLoop):
    """LLaDA2.0's `generate`: it keeps no keys, so it makes no commit call.

    It ends after a block that leaves a stop token behind the prompt, and cuts the text to its
    length `end` and after the first stop token. With `early` it ends as soon as it commits one and
    no mask is left before the first, which it also looks for in the prompt.
    """

    def __init__(self, job: Job, stop_id: int | None, end: int, early: bool) -> None:
        super().__init__(job, stop_id)
        self.ended_at, self._early = end, early

    def finalize(self, step: PendingStep) -> StepEvent:
        """Finalize a step and test for a stop token: after a block, or one that it committed."""
        event, view = super().finalize(step), step.view
        start, stop = self.run.prompt_length, view.block.stop
        if self._early and self._stop_id in event.ids.tolist():
            first = int(self.stops(slice(0, stop)).argmax())
            if not self.masked[0, start:first].any():
                self.ended, self.ended_at = True, max(first + 1, start)
        elif self.finishes(step):
            stops = self.stops(slice(start, min(stop, self.ended_at)))
            if stops.any():
                self.ended, self.ended_at = True, start + int(stops.argmax()) + 1
        return event
