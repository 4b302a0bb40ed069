"""Loops as released: forwards in blocks that have no mask left, and blocks that keep masks."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from engine.cache.base import StepPlan, StepView
from engine.cache.store import ActivationStore
from engine.config.spec import RunSpec
from engine.core.events import StepEvent
from engine.core.rows import is_empty, to_mask
from engine.generate.capture.forwards import CapturedForwards
from engine.generate.guidance import GuidanceBranch
from engine.generate.job import Job
from engine.generate.loop import Denoiser
from engine.generate.step_state import PendingStep
from engine.models.base import ModelAdapter
from engine.models.flops import FlopCounter
from engine.record.recorder import Recorder


class PolicyStore(ActivationStore):
    """An activation store that writes as its policy says, which may be wrapped by a recorder."""

    policy: Any


class IdlingDenoiser(Denoiser):
    """A loop that also makes calls which commit nothing."""

    def with_store(
        self,
        branch: GuidanceBranch,
        kind: type[PolicyStore],
        changed: Callable[[ModelAdapter, Any], Any] = lambda adapter, policy: adapter,
    ) -> GuidanceBranch:
        """The branch with a store of another kind; `changed` makes its adapter from the job's."""
        job, run, policy = self.job, self.run, branch.policy
        size = run.batch, run.length, job.adapter.dtype, job.adapter.device
        store = kind(job.adapter.info, policy.sites(run), *size)
        store.policy = policy
        adapter = changed(job.recorder.wrap_adapter(job.adapter, store), policy)
        return GuidanceBranch(policy, store, CapturedForwards(adapter, store, policy))

    @torch.inference_mode()
    def idle(self, *view: Any) -> None:
        """Make such a call, of the step that `_view` describes by these arguments."""
        counter = FlopCounter(self.run.info)
        self._forward(self.branches[0], self._view(*view), self.canvas, self.job.recorder, counter)
        self.step_index += 1

    def _forward(
        self,
        branch: GuidanceBranch,
        view: StepView,
        canvas: Tensor,
        recorder: Recorder,
        counter: FlopCounter,
    ) -> tuple[StepPlan, Tensor]:
        """In a step without masks, read the logits of a row that is fed."""
        if not view.real_host.any():
            forwards: Any = partial(_of_fed_row, branch.forwards, self.run.info.vocab_size)
            branch = replace(branch, forwards=forwards)
        return super()._forward(branch, view, canvas, recorder, counter)


class IdleCallDenoiser(IdlingDenoiser):
    """Fast-dLLM's cached loops run a cached forward even in a block that the full one finished."""

    def finalize(self, step: PendingStep) -> StepEvent:
        """Finalize a step and run the idle forward after the first one of a block."""
        event, view = super().finalize(step), step.view
        if view.block_step == 0 and not self.masks_left(view.block).any():
            self.idle(view.block, view.block_index, 1)
        return event


class CutDenoiser(Denoiser):
    """The last block ends with the answer: it is shorter if the blocks do not divide the answer."""

    def step(
        self, block: slice, block_index: int, block_step: int, fills: slice | None = None
    ) -> PendingStep:
        """As the base class."""
        return super().step(self._cut(block), block_index, block_step, fills)

    def masks_left(self, block: slice) -> np.ndarray:
        """As the base class."""
        return super().masks_left(self._cut(block))

    def _cut(self, block: slice) -> slice:
        return slice(block.start, min(block.stop, self.run.length))


class CappedDenoiser(CutDenoiser):
    """A block ends after `cap(block)` steps, and keeps the masks that are left."""

    def __init__(self, job: Job, cap: Callable[[slice], int]) -> None:
        super().__init__(job)
        self._cap, self._ended = cap, set[int]()

    def can_run_ahead(self, step: PendingStep) -> bool:
        """False: the block of the step may end with it."""
        return False

    def masks_left(self, block: slice) -> np.ndarray:
        """As the base class; none in a block that ended."""
        left = super().masks_left(block)
        return np.zeros_like(left) if block.start in self._ended else left

    def finalize(self, step: PendingStep) -> StepEvent:
        """Finalize a step and end its block if it was the last one allowed."""
        block = step.view.block
        if step.view.block_step + 1 >= self._cap(block):
            self._ended.add(block.start)
        return super().finalize(step)


class OneStepDenoiser(CappedDenoiser, IdleCallDenoiser):
    """Fast-dLLM's sampler for Dream with one step a block: its first call commits one token.

    The second call commits nothing and ends the block.
    """

    def __init__(self, job: Job) -> None:
        super().__init__(job, lambda block: 1)


def denoiser_of_every_step(spec: RunSpec) -> type[Denoiser]:
    """The denoiser of LLaDA's loop: the engine's own unless a block has more steps than masks."""
    return EveryStepDenoiser if spec.steps > spec.gen_length else Denoiser


class EveryStepDenoiser(IdlingDenoiser):
    """LLaDA's loop takes every step of a block, also those after its last mask.

    Such a step runs its forward, advances the caches and commits nothing.
    """

    def __init__(self, job: Job) -> None:
        super().__init__(job)
        self._steps = job.spec.steps // job.spec.blocks

    def can_run_ahead(self, step: PendingStep) -> bool:
        """False: the next step may be one without masks."""
        return False

    def finalize(self, step: PendingStep) -> StepEvent:
        """Finalize a step and, after the last one that commits, run the others of its block."""
        event, view = super().finalize(step), step.view
        if not self.masks_left(view.block).any():
            for block_step in range(view.block_step + 1, self._steps):
                super().finalize(self.step(view.block, view.block_index, block_step))
        return event


def _of_fed_row(
    forwards: CapturedForwards, vocab: int, plan: StepPlan, canvas: Tensor, pad: Tensor,
    rows: Tensor, *args: Any,
) -> Tensor:  # fmt: skip
    """Logits [1, n, vocab] of `rows` [1, n], the first replaced by one that the plan feeds.

    They are zeros if it feeds none.
    """
    if is_empty(plan.rows):
        return torch.zeros(*rows.shape, vocab, device=canvas.device)
    fed = to_mask(plan.rows, 1, canvas.shape[1])[0]
    if not fed[rows[0, 0].cpu()]:
        rows = torch.cat((fed.nonzero()[:1].to(rows.device), rows[:, 1:]), 1)
    return forwards(plan, canvas, pad, rows, *args)
