"""denoise: the one decoding loop; blocks, steps, end of text, a generator of events."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from engine.cache.base import StepPlan, StepView
from engine.cache.store import ActivationStore
from engine.core.device import Clock, HostCopy, keep_freed, upload
from engine.core.events import StepEvent
from engine.core.rows import count
from engine.generate import end_of_text
from engine.generate.captured_forward import CapturedForwards
from engine.generate.guidance import Branch, Guide
from engine.generate.job import Job
from engine.generate.step_state import CanvasState, PendingStep, StepViewBuilder
from engine.models.flops import FlopCounter
from engine.record.recorder import Recorder
from engine.unmask.base import Candidates, Commit
from engine.unmask.proposals import propose


class Denoiser:
    """The state of a run between steps."""

    def __init__(self, job: Job) -> None:
        self.job, spec, adapter, self.run = job, job.spec, job.adapter, job.run_info()
        if adapter.info.logit_shift and job.prompt_length < 1:
            raise ValueError("prompt: a model with shifted logits needs at least one prompt token")
        masked = np.zeros(job.canvas.shape, bool)
        masked[:, job.prompt_length :] = True
        if job.fixed_mask is not None:
            masked &= ~job.fixed_mask.numpy()
        self.given = upload(~masked, adapter.device)
        if job.known_mask is not None:
            masked &= ~job.known_mask.numpy()
        self.tokens = CanvasState(job.canvas, masked, adapter.device)
        self.clock = Clock(adapter.device)
        keep_freed()
        self.pad_mask = None if job.pad_mask is None else job.pad_mask.to(adapter.device)
        self.branches = [self._branch(i) for i in range(2 if spec.cfg_scale else 1)]
        self._late: PendingStep | None = None
        self._begin()

    @property
    def ids(self) -> np.ndarray:
        """The canvas [B, T] as the events have told it."""
        return self.tokens.ids

    @property
    def masked(self) -> np.ndarray:
        """Masked positions [B, T] bool as the events have told them."""
        return self.tokens.masked

    @property
    def canvas(self) -> Tensor:
        """The canvas [B, T] on the device."""
        return self.tokens.canvas

    def rewind(self) -> None:
        """Begin the run anew, in the memory that it has and with the forwards it captured."""
        self.tokens.rewind()
        for branch in self.branches:
            branch.policy.start(self.run)
            branch.store.forget()
        self._begin()

    def held(self) -> int:
        """Bytes that the run keeps: the caches of its branches, and the guider's."""
        return sum(b.store.nbytes() for b in self.branches) + self.job.unmasker.held()

    def left(self, block: slice) -> np.ndarray:
        """How many positions [B] of a block are masked, the step under way counted as done."""
        told: np.ndarray = self.masked[:, block].sum(1)
        late = self._late
        if late is None or late.view.block != block:
            return told
        assert late.counts is not None, "its commit is not foreseen, so it is told first"
        return told - late.counts

    def can_run_ahead(self, step: PendingStep) -> bool:
        """Whether the next step may be asked for before this one is told.

        Nothing is gained on a CPU, which has done what it was asked.
        """
        job = self.job
        return (
            self.canvas.device.type != "cpu"
            and step.counts is not None
            and all(branch.policy.static_rows for branch in self.branches)
            and not job.recorder.listens
            and job.unmasker.end_of_text_policy(job.spec.eos) == "official"
        )

    @torch.inference_mode()
    def step(self, block: slice, block_index: int, block_step: int) -> PendingStep:
        """Ask the device for one forward and one commit."""
        job, clock = self.job, self.clock
        started = clock.mark()
        view = self._view(block, block_index, block_step)
        counter = FlopCounter(self.run.info)
        plan, logits = self._logits(view, counter)
        forwarded = clock.mark()
        candidates = self._candidates(logits, view)
        commit, places = self._commit(candidates, view)
        decided = clock.mark()
        landing = HostCopy(places, commit.ids, candidates.confidence.float())
        guided = job.unmasker.report(job.spec.record != "off")
        counter.guide(guided.flops if guided else 0)
        known = {
            "step": self.step_index,
            "block": block_index,
            "block_step": block_step + job.steps_before(block),
            "kind": plan.kind,
            "rows": count(plan.rows, self.run.length),
            "forwards": 1 + (len(self.branches) > 1 and self.guide.due(view.step)),
            "flops": counter.parts(),
            "recomputed": counter.recomputed() / (self.canvas.numel() * len(self.branches)),
            "recording": job.recorder.record(view, plan, logits, candidates),
            "guided": guided,
        }
        self.step_index += 1
        self._late = PendingStep(view, landing, commit.counts, (started, forwarded, decided), known)
        return self._late

    @torch.inference_mode()
    def finalize(self, step: PendingStep) -> StepEvent:
        """Wait for a step and note on the host what it did, the end-of-text rule applied."""
        if self._late is step:
            self._late = None
        rule = self.job.unmasker
        end_of_text_policy, skips = (
            rule.end_of_text_policy(self.job.spec.eos),
            rule.may_skip(step.view),
        )
        return step.finalize(self.tokens, self.clock, end_of_text_policy, skips)

    def _begin(self) -> None:
        """What is new with each beginning of the run; the policies have been started."""
        job, spec = self.job, self.job.spec
        self.noise = [
            torch.Generator().manual_seed(spec.seed + job.first + i) for i in range(self.run.batch)
        ]
        self.guide = Guide(spec.cfg_scale, self.branches[0].policy)
        self.step_index, self._late = 0, None
        per_block = spec.steps // spec.blocks if job.unmasker.scheduled else None
        job.unmasker.set_guider(job.guiding)
        job.unmasker.start(self.run, per_block, job.begun)

    def _branch(self, index: int) -> Branch:
        job, policy = self.job, self.job.make_policy()
        if index == 0:
            policy = job.recorder.wrap_policy(policy)
        policy.start(self.run)
        adapter, run = job.adapter, self.run
        store = ActivationStore(
            adapter.info, policy.sites(run), run.batch, run.length, adapter.dtype, adapter.device
        )
        heard = job.recorder.wrap_adapter(adapter, store) if index == 0 else adapter
        return Branch(policy, store, CapturedForwards(heard, store, policy, job.capturer))

    def _view(self, block: slice, block_index: int, block_step: int) -> StepView:
        views = StepViewBuilder(self.run, self.tokens, self.branches[0].policy, self.job.unmasker)
        at = self.step_index, block, block_index, block_step
        if self._late is None:
            return views.with_host_state(*at, self.noise)
        return views.without_host_state(*at, self.left(block))

    def _logits(self, view: StepView, counter: FlopCounter) -> tuple[StepPlan, Tensor]:
        """The first branch's plan and the logits [B, n, V] of `view.needs`, guided and shifted."""
        plan, z = self._forward(self.branches[0], view, self.canvas, self.job.recorder, counter)
        if len(self.branches) > 1:
            static_rows = self.canvas.masked_fill(self.given, self.run.info.mask_id)

            def unconditional(clock: int) -> Tensor:
                own = replace(view, step=clock, canvas=static_rows)
                return self._forward(self.branches[1], own, static_rows, Recorder(), counter)[1]

            z = self.guide.mix(view, z, unconditional)
        z.select(-1, self.run.info.mask_id).fill_(-torch.inf)
        if self.job.spec.eos_suppress == "logits":
            end_of_text.suppress_logits(z, self.run.info.eos_id)
        self.job.unmasker.restrict(z)
        return plan, z

    def _forward(
        self,
        branch: Branch,
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
        z = branch.graphs(plan, canvas, self.pad_mask, wanted, counter, unread)
        if extra is not None:
            recorder.see(view, z[:, rows.shape[1] :].clone())
        return plan, z[:, : rows.shape[1]]

    def _candidates(self, logits: Tensor, view: StepView) -> Candidates:
        spec, rule = self.job.spec, self.job.unmasker
        found = propose(
            logits,
            view.real,
            rule.score,
            spec.temperature,
            self.noise,
            rule.shaping,
            view.real_host,
        )
        if spec.eos_suppress == "confidence":
            return end_of_text.suppress_confidence(found, self.run.info.stop_ids)
        return replace(found, logits=logits) if rule.guided else found

    def _commit(self, candidates: Candidates, view: StepView) -> tuple[Commit, Tensor]:
        """Apply the unmasker's choice on the device; the positions [B, n] as CanvasState.commit."""
        commit = self.job.unmasker.commit(candidates, view)
        chosen = commit.mask & view.real
        for branch in self.branches:
            branch.policy.end_step(view, candidates.confidence, chosen)
        return commit, self.tokens.commit(view.needs, chosen, commit.ids)


def denoise(state: Denoiser) -> Iterator[StepEvent]:
    """Decode block by block until no mask is left; who stops asking for events stops the run.

    A block is left as soon as nothing in it is masked, so no forward is spent on a finished one.
    Where nothing of a step has to be known to ask for the next, events come one step late, so that
    the device never waits for the host.
    """
    job = state.job
    late: PendingStep | None = None
    for index in range(job.spec.blocks):
        start = job.prompt_length + index * job.spec.block_length
        block, block_step = slice(start, start + job.spec.block_length), 0
        while state.left(block).any():
            step = state.step(block, index, block_step)
            block_step += 1
            if late is not None:
                yield state.finalize(late)
            late = step
            if not state.can_run_ahead(step):
                yield state.finalize(step)
                late = None
    if late is not None:
        yield state.finalize(late)
