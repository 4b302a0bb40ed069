"""ShapeDenoiser: the steps of a run on a model without weights, with the work of each."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from engine.cache.base import CachePolicy, StepPlan, StepView
from engine.cache.forward import ForwardPass, ResidualStream, UnreadRows
from engine.cache.store import ActivationStore
from engine.core.rows import Rows, count
from engine.estimate.assumptions import AssumedUnmasker
from engine.estimate.work import WorkCounter
from engine.generate.guidance import GuidanceBranch
from engine.generate.job import Job
from engine.generate.loop import Denoiser
from engine.generate.step_state import PendingStep
from engine.models.base import ModelAdapter
from engine.models.flops import FlopCounter
from engine.unmask.base import Candidates, Commit


class _Counted(NamedTuple):
    """The layers but the last, counted once: output rows, and the work (of one row if indexed)."""

    rows: Rows
    work: WorkCounter


class _ShapeView(StepView):
    """The view of a step whose positions are not known on the meta device."""

    @property
    def logit_rows(self) -> Tensor:
        """As StepView, but unshifted on the meta device, where arithmetic takes half a ms."""
        return self.needs if self.needs.is_meta else super().logit_rows


class CountedForwards:
    """The forwards of one branch, without values; takes the place of CapturedForwards.

    Steps that a policy promises to be alike (Speedups.capture_key) are counted once.
    """

    def __init__(self, adapter: ModelAdapter, store: ActivationStore, policy: CachePolicy) -> None:
        self._adapter, self._store, self._policy = adapter, store, policy
        self._known: dict[Hashable, _Counted] = {}

    def __call__(
        self,
        plan: StepPlan,
        canvas: Tensor,
        pad_mask: Tensor | None,
        logit_rows: Tensor,
        counter: FlopCounter,
        unread: UnreadRows,
        observe: object,
    ) -> Tensor:
        """Empty logits [B, n, V] of `logit_rows`; see CapturedForwards. Nothing is observed."""
        info, dtype = self._adapter.info, self._adapter.dtype
        step = ForwardPass(
            self._adapter, self._store, self._policy, plan, canvas, pad_mask,
            WorkCounter.of(info, dtype), unread,
        )  # fmt: skip
        key_of = self._policy.speedups.capture_key
        key = None if key_of is None else key_of(self._policy)
        if (
            key is not None and info.experts is not None
        ):  # the rows decide how many experts are read
            key = (*key, count(plan.rows, canvas.shape[1]))
        stream = step.begin() if key is None else self._begin(step, (key, _shape_of(plan)))
        logits = step.finish(stream, logit_rows)
        counter.add(step.counter)
        return logits

    def _begin(self, step: ForwardPass, key: Hashable) -> ResidualStream:
        """ForwardPass.begin, counted once for each key."""
        size = count(step.plan.rows, step.canvas.shape[1])
        indexed = isinstance(step.plan.rows, Tensor)
        if key not in self._known:
            work = WorkCounter.of(step.adapter.info, step.adapter.dtype)
            stream = replace(step, counter=work).begin()
            self._known[key] = _Counted(stream.rows, work.per_row(size) if indexed else work)
        known = self._known[key]
        step.counter.add(known.work, size if indexed else 1)
        rows = step.plan.rows if indexed else known.rows
        h = torch.empty(
            len(step.canvas), count(rows, step.canvas.shape[1]), step.adapter.info.d_model,
            dtype=step.adapter.dtype, device=step.canvas.device,
        )  # fmt: skip
        return ResidualStream(h, rows)


class ShapeDenoiser(Denoiser):
    """A run whose tokens are placeholders: the candidates are committed from left to right.

    The adapter of the job is a ShapeAdapter, its unmasker one that spends a schedule. `work` has
    one counter for each step taken, of all its forwards.
    """

    def __init__(self, job: Job) -> None:
        self.work: list[WorkCounter] = []
        super().__init__(job)
        info = job.adapter.info
        ends = {*info.stop_ids, info.mask_id}
        self._token = next(token for token in range(info.vocab_size) if token not in ends)

    def can_run_ahead(self, step: PendingStep) -> bool:
        """Never."""
        return False

    def _branch(self, index: int) -> GuidanceBranch:
        branch = super()._branch(index)
        forwards: Any = CountedForwards(self.job.adapter, branch.store, branch.policy)
        return replace(branch, forwards=forwards)

    def _view(
        self, block: slice, block_index: int, block_step: int, fills: slice | None = None
    ) -> StepView:
        return _ShapeView(**vars(super()._view(block, block_index, block_step, fills)))

    def _logits(self, view: StepView, counter: FlopCounter) -> tuple[StepPlan, Tensor]:
        work = WorkCounter.of(self.run.info, self.job.adapter.dtype)
        found = super()._logits(view, work)
        counter.add(work)
        self.work.append(work)
        return found

    def _candidates(self, logits: Tensor, view: StepView) -> Candidates:
        """Placeholders on the host, the lower positions first."""
        shape = view.needs_host.shape
        order = -torch.arange(shape[1], dtype=torch.float64).expand(shape)
        real = torch.from_numpy(view.real_host)
        return Candidates(
            torch.full(shape, self._token), torch.ones(shape),
            order.masked_fill(~real, -torch.inf),
        )  # fmt: skip

    def _commit(self, candidates: Candidates, view: StepView) -> tuple[Commit, Tensor]:
        """Commit on the host only."""
        on_host = replace(
            view,
            canvas=torch.from_numpy(self.ids),
            masked=torch.from_numpy(view.masked_host),
            needs=torch.from_numpy(view.needs_host),
            real=torch.from_numpy(np.ascontiguousarray(view.real_host)),
        )
        if view.fills is None:
            commit = self.job.unmasker.commit(candidates, on_host)
        else:
            if isinstance(self.job.unmasker, AssumedUnmasker):
                self.job.unmasker.skip()
            commit = Commit(on_host.real, candidates.ids, np.zeros(self.run.batch, np.int64))
        chosen = commit.mask & on_host.real
        for branch in self.branches:
            branch.policy.end_step(on_host, candidates.confidence, chosen)
        return commit, on_host.needs.masked_fill(~chosen, self.run.length)


def _shape_of(plan: StepPlan) -> Hashable:
    """What distinguishes a plan from others of the same capture key; the size of an index not."""
    fields: tuple[Any, ...] = (plan.rows, plan.keys, plan.key_mask, plan.output_rows)
    return plan.kind, tuple(
        "index" if isinstance(x, Tensor) else (x.start, x.stop) if isinstance(x, slice) else x
        for x in fields
    )
