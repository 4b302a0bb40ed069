"""Denoiser and denoise: the decoding loop over blocks and steps, a generator of events."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from engine.cache.base import StepPlan, StepView
from engine.cache.store import ActivationStore
from engine.core.device import Clock, HostCopy, upload
from engine.core.events import StepEvent
from engine.core.rows import count, put
from engine.generate import end_of_text
from engine.generate.capture.forwards import CapturedForwards
from engine.generate.end_of_text import Answer, answer_before_end
from engine.generate.guidance import ClassifierFreeGuidance, GuidanceBranch
from engine.generate.job import Job
from engine.generate.step_state import (
    CanvasState,
    PendingStep,
    StepViewBuilder,
    shared_progress,
)
from engine.models.flops import FlopCounter
from engine.record.recorder import Recorder
from engine.unmask.base import Candidates, Commit
from engine.unmask.proposals import exclude_non_text, propose


class Denoiser:
    """A run between its steps.

    Raises ValueError naming `prompt` if logits are shifted and the prompt is empty.
    """

    def __init__(self, job: Job) -> None:
        self.job, spec, adapter, self.run = job, job.spec, job.adapter, job.run_info()
        if adapter.info.logit_shift and job.prompt_length < 1:
            raise ValueError("prompt: a model with shifted logits needs at least one prompt token")
        assert job.aligned, "blocks of a batch lie at different positions; split the job"
        given = job.given()  # what classifier-free guidance masks; the suffix stays
        given[:, given.shape[1] - job.suffix_length :] = False
        self._given = upload(given, adapter.device)
        self._canvas = CanvasState(job.canvas, job.masked(), adapter.device)
        self._clock = Clock(adapter.device)
        self.pad_mask = None if job.pad_mask is None else job.pad_mask.to(adapter.device)
        self.branches = [self._branch(i) for i in range(2 if spec.cfg_scale else 1)]
        self._pending: PendingStep | None = None
        self._reset()

    @property
    def ids(self) -> np.ndarray:
        """The canvas [B, T] on the host, after the last finalized step."""
        return self._canvas.host_ids

    @property
    def masked(self) -> np.ndarray:
        """Masked positions [B, T] bool on the host, after the last finalized step."""
        return self._canvas.host_masked

    @property
    def canvas(self) -> Tensor:
        """The canvas [B, T] on the device."""
        return self._canvas.device_ids

    def rewind(self) -> None:
        """Restart the run; its memory and captured forwards are reused."""
        self._canvas.reset()
        for branch in self.branches:
            branch.policy.start(self.run)
            branch.store.clear()
        self._reset()

    def cached_bytes(self) -> int:
        """Bytes in the caches of all branches, of their guidance and of the guider."""
        stored = sum(b.store.nbytes() for b in self.branches)
        return stored + self._guidance.nbytes() + self.job.unmasker.cached_bytes()

    def answer_length(self, sequence: int) -> int:
        """Positions of a sequence's answer before its stop, all of them without one.

        A block-causal model decodes whole blocks; positions beyond `gen_length` are no answer.
        """
        before_stop = int(self._canvas.stop[sequence]) - self.run.prompt_length
        return min(before_stop, self.job.spec.gen_length)

    def answer(self, sequence: int) -> Answer:
        """A sequence's answer before its end or stop."""
        start = self.run.prompt_length
        stop = start + self.answer_length(sequence)
        ids, masked = self.ids[sequence, start:stop], self.masked[sequence, start:stop]
        return answer_before_end(ids, masked, self.run.info.stop_ids)

    def masks_left(self, block: slice) -> np.ndarray:
        """Masked positions [B] of a block before the stop, if any, after the last launched step."""
        on_host: np.ndarray = self._canvas.undecided[:, block].sum(1)
        pending = self._pending
        if pending is None or pending.view.block != block:
            return on_host
        assert pending.counts is not None, "a step with unknown counts is finalized at once"
        return on_host - pending.counts

    def can_run_ahead(self, step: PendingStep) -> bool:
        """Whether the next step may be launched before this one is finalized.

        Always false on a CPU, where a launched step is complete.
        """
        job = self.job
        return (
            self.canvas.device.type != "cpu"
            and step.counts is not None
            and all(branch.policy.speedups.static_rows for branch in self.branches)
            and not job.recorder.reads_tensors
            and job.unmasker.end_of_text_rule(job.spec.eos) == "official"
            and not self.run.info.block_causal  # whose official rule may end the text
            and not job.stops
        )

    def rows_to_fill(self, block: slice) -> slice | None:
        """Rows that a step of its own computes before the first proposals in a block; or None.

        With shifted logits, a rule that first proposes the block's first token alone needs no such
        step: the token comes from the last of these rows, so that the step that proposes it
        computes them.
        """
        policy, masked = self.branches[0].policy, self.masked
        rows = policy.rows_to_fill(block)
        if rows is None or not self.run.info.logit_shift:
            return rows
        ends = policy.logits_end(masked, block)
        proposed = self.job.unmasker.candidate_positions(masked, block, ends)
        return rows if proposed[:, block.start + 1 :].any() else None

    @torch.inference_mode()
    def step(
        self, block: slice, block_index: int, block_step: int, fills: slice | None = None
    ) -> PendingStep:
        """Launch one forward and one commit on the device; with `fills`, commit nothing."""
        job, clock = self.job, self._clock
        started = clock.mark()
        view = self._view(block, block_index, block_step, fills)
        counter = FlopCounter(self.run.info)
        plan, logits = self._logits(view, counter)
        forwarded = clock.mark()
        candidates = self._candidates(logits, view)
        commit, written = self._commit(candidates, view)
        decided = clock.mark()
        sure = candidates.confidence if commit.confidence is None else commit.confidence
        results = HostCopy(written, commit.ids, sure.float())
        detail = job.spec.record != "off"
        guided = None if fills else job.unmasker.guider_report(detail)
        counter.guide(guided.flops if guided else 0)
        unconditional = len(self.branches) > 1 and self._guidance.runs_unconditional(view.step)
        event_fields = {
            "step": self.step_index,
            "block": block_index,
            "block_step": block_step + job.steps_before(block),
            "kind": plan.kind,
            "rows": count(plan.rows, self.run.length),
            "rows_plain": 0 if fills else count(view.rows_in_sight, self.run.length),
            "forwards": 1 + unconditional,
            "flops": counter.parts(),
            "recomputed": counter.recomputed() / (self.canvas.numel() * len(self.branches)),
            "recording": job.recorder.record(view, plan, logits, candidates),
            "guided": guided,
        }
        self.step_index += 1
        marks = started, forwarded, decided
        self._pending = PendingStep(view, results, commit.counts, marks, event_fields)
        return self._pending

    @torch.inference_mode()
    def finalize(self, step: PendingStep) -> StepEvent:
        """Wait for a step and update the host's canvas; applies the end-of-text rule.

        Raises RuntimeError as `PendingStep.finalize`.
        """
        if self._pending is step:
            self._pending = None
        unmasker = self.job.unmasker
        event = step.finalize(
            self._canvas,
            self._clock,
            unmasker.end_of_text_rule(self.job.spec.eos),
            step.view.fills is not None or unmasker.may_commit_nothing(step.view),
        )
        if self.job.stops:
            self._canvas.stop_at(self._find_stops())
        return event

    def _reset(self) -> None:
        """Set the state of a run before its first step; the policies are started already."""
        job, spec = self.job, self.job.spec
        self._noise = [torch.Generator().manual_seed(seed) for seed in job.sequence_seeds]
        self._guidance = ClassifierFreeGuidance(spec.cfg_scale, self.branches[0].policy)
        self.step_index, self._pending = 0, None
        if job.stops:  # given tokens, or those of the run that this one continues, may hold one
            self._canvas.stop_at(self._find_stops())
        per_block = spec.steps // spec.blocks if job.unmasker.scheduled else None
        job.unmasker.set_guider(job.run_guider)
        job.unmasker.start(self.run, per_block, {**shared_progress(self.run), **job.progress})
        job.recorder.start()

    def _find_stops(self) -> np.ndarray:
        """The first position [B] of a series of `Job.stops` in the answer, T without one."""
        run = self.run
        answer = slice(run.prompt_length, run.prompt_length + run.gen_length)
        found = end_of_text.find_stops(self.ids[:, answer], self.masked[:, answer], self.job.stops)
        return np.where(found < run.gen_length, run.prompt_length + found, run.length)

    def _branch(self, index: int) -> GuidanceBranch:
        job, policy, notes = self.job, self.job.make_policy(), None
        if index == 0:
            policy, notes = job.recorder.wrap_policy(policy), job.recorder.notes
        policy.start(self.run)
        adapter, run = job.adapter, self.run
        store = ActivationStore(
            adapter.info, policy.sites(run), run.batch, run.length, adapter.dtype, adapter.device,
            adapter.kernels.fused.get("write", put),
        )  # fmt: skip
        if index == 0:
            adapter = job.recorder.wrap_adapter(adapter, store)
        else:
            adapter = adapter.with_given_rows(None)
        forwards = CapturedForwards(adapter, store, policy, job.capturer, notes)
        return GuidanceBranch(policy, store, forwards)

    def _view(
        self, block: slice, block_index: int, block_step: int, fills: slice | None = None
    ) -> StepView:
        builder = StepViewBuilder(
            self.run, self._canvas, self.branches[0].policy, self.job.unmasker,
            self.step_index, block, block_index, block_step,
        )  # fmt: skip
        if fills is not None:
            return builder.of_fill(fills)
        if self._pending is None:
            return builder.with_host_state(self._noise)
        return builder.without_host_state(self.masks_left(block))

    def _logits(self, view: StepView, counter: FlopCounter) -> tuple[StepPlan, Tensor]:
        """The first branch's plan and the logits [B, n, V] of `view.needs`, guided and shifted."""
        plan, z = self._forward(self.branches[0], view, self.canvas, self.job.recorder, counter)
        if len(self.branches) > 1:
            masked_canvas = self.canvas.masked_fill(self._given, self.run.info.mask_id)

            def unconditional(step: int) -> Tensor:
                own = replace(view, step=step, canvas=masked_canvas)
                return self._forward(self.branches[1], own, masked_canvas, Recorder(), counter)[1]

            z = self._guidance.mix(view, z, unconditional)
        for token, offset in self.job.unmasker.logit_offsets(view).items():
            z.select(-1, token).add_(offset)
        exclude_non_text(z, self.run.info)
        for token in self.run.info.suppressed_ids:
            z.select(-1, token).fill_(-torch.inf)
        if self.job.spec.eos_suppress == "logits":
            end_of_text.suppress_logits(z, {self.run.info.eos_id, self.run.info.fill_id})
        self.job.unmasker.restrict_logits(z)
        return plan, z

    def _forward(
        self,
        branch: GuidanceBranch,
        view: StepView,
        canvas: Tensor,
        recorder: Recorder,
        counter: FlopCounter,
    ) -> tuple[StepPlan, Tensor]:
        recorder.begin(view)
        plan = branch.policy.begin_step(view)
        rows, extra = view.logit_rows, recorder.extra_rows(view, plan)
        wanted = rows if extra is None else torch.cat((rows, extra), 1)
        unread = recorder.unread if extra is None else "full"
        z = branch.forwards(plan, canvas, self.pad_mask, wanted, counter, unread, recorder.observe)
        if extra is not None:
            recorder.receive_logits(view, z[:, rows.shape[1] :].clone())
        return plan, z[:, : rows.shape[1]]

    def _candidates(self, logits: Tensor, view: StepView) -> Candidates:
        spec, unmasker = self.job.spec, self.job.unmasker
        found = propose(
            logits,
            view.real,
            unmasker.score,
            spec.temperature,
            self._noise,
            unmasker.sampling_params,
            view.real_host,
            self.run.info.double_confidence,
        )
        if spec.eos_suppress == "confidence":
            return end_of_text.suppress_confidence(found, self.run.info.stop_ids)
        return replace(found, logits=logits) if unmasker.guided else found

    def _commit(self, candidates: Candidates, view: StepView) -> tuple[Commit, Tensor]:
        """Apply the unmasker's choice on the device; returns the positions [B, n] written."""
        if view.fills is None:
            commit = self.job.unmasker.commit(candidates, view)
        else:
            commit = Commit(view.real, candidates.ids, np.zeros(self.run.batch, np.int64))
        chosen = commit.mask & view.real
        for branch in self.branches:
            branch.policy.end_step(view, candidates.confidence, chosen)
        return commit, self._canvas.commit(view.needs, chosen, commit.ids)


def denoise(state: Denoiser) -> Iterator[StepEvent]:
    """Decode block by block until no mask is left; closing the iterator stops the run.

    A block ends as soon as it holds no mask before the stop, if any. A step that computes known
    rows only comes before the first one of its block and has its number. If steps can run ahead,
    each event is yielded after the next step is launched, so that the device never waits for the
    host.
    """
    pending: PendingStep | None = None
    for index, block in enumerate(state.run.grid):
        block_step = 0
        if state.masks_left(block).any() and (rows := state.rows_to_fill(block)) is not None:
            yield state.finalize(state.step(block, index, block_step, rows))
        while state.masks_left(block).any():
            step = state.step(block, index, block_step)
            block_step += 1
            if pending is not None:
                yield state.finalize(pending)
            pending = step
            if not state.can_run_ahead(step):
                yield state.finalize(step)
                pending = None
    if pending is not None:
        yield state.finalize(pending)
