"""denoise: the one decoding loop; blocks, steps, end of text, a generator of events."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from engine import eos
from engine.cache.base import RunInfo, StepPlan, StepView
from engine.cache.store import ActivationStore
from engine.clock import now
from engine.decode.base import Candidates
from engine.decode.score import propose
from engine.events import StepEvent
from engine.flops import Ledger
from engine.forward import forward
from engine.guidance import Branch, Guide
from engine.job import Job
from engine.recorder import Recorder
from engine.rows import count, mark, pack


class Denoiser:
    """The state of a run between steps; `canvas` and `masked` have a mirror on the host."""

    def __init__(self, job: Job) -> None:
        self.job, spec, adapter = job, job.spec, job.adapter
        batch, length = job.canvas.shape
        self.run = RunInfo(
            adapter.info,
            batch,
            job.prompt_length,
            spec.gen_length,
            spec.block_length,
            spec.cfg_scale > 0,
            () if job.pad_mask is None else tuple((~job.pad_mask).sum(1).tolist()),
        )
        assert length == self.run.length, "canvas: prompt and answer make the length"
        if adapter.info.logit_shift and job.prompt_length < 1:
            raise ValueError("prompt: a model with shifted logits needs at least one prompt token")
        self.ids = job.canvas.numpy().copy()
        self.masked = np.zeros((batch, length), bool)
        self.masked[:, job.prompt_length :] = True
        if job.fixed_mask is not None:
            self.masked &= ~job.fixed_mask.numpy()
        self.given = torch.from_numpy(~self.masked).to(adapter.device)
        if job.known_mask is not None:
            self.masked &= ~job.known_mask.numpy()
        self.canvas = job.canvas.to(adapter.device, copy=True)
        self.pad_mask = None if job.pad_mask is None else job.pad_mask.to(adapter.device)
        self.noise = [
            torch.Generator().manual_seed(spec.seed + job.first + i) for i in range(batch)
        ]
        self.branches = [self._branch(i) for i in range(2 if spec.cfg_scale else 1)]
        self.guide = Guide(spec.cfg_scale, self.branches[0].policy)
        self.step_index = 0
        per_block = spec.steps // spec.blocks if job.unmasker.scheduled else None
        job.unmasker.equip(job.guiding)
        job.unmasker.start(self.run, per_block, job.begun)

    def held(self) -> int:
        """Bytes that the run keeps: the caches of its branches, and the guider's."""
        return sum(b.store.nbytes() for b in self.branches) + self.job.unmasker.held()

    def open_rows(self, block: slice) -> np.ndarray:
        """Masked positions [B, T] of a block."""
        rows = np.zeros_like(self.masked)
        rows[:, block] = self.masked[:, block]
        return rows

    @torch.inference_mode()
    def step(self, block: slice, block_index: int, block_step: int) -> StepEvent:
        """One forward and one commit."""
        job = self.job
        started = now(self.canvas.device)
        view = self._view(block, block_index, block_step)
        ledger = Ledger(self.run.info)
        plan, logits = self._logits(view, ledger)
        forwarded = now(self.canvas.device)
        candidates = self._candidates(logits, view)
        sequences, positions, ids, confidence = self._commit(candidates, view)
        decided = now(self.canvas.device)
        guided = job.unmasker.report(job.spec.record != "off")
        ledger.guide(guided.flops if guided else 0)
        event = StepEvent(
            step=self.step_index,
            block=block_index,
            block_step=block_step + job.steps_before(block),
            kind=plan.kind,
            rows=count(plan.rows, self.run.length),
            forwards=1 + (len(self.branches) > 1 and self.guide.due(view.step)),
            sequences=sequences.astype(np.int32),
            positions=positions.astype(np.int32),
            ids=ids.astype(np.int32),
            confidence=confidence,
            masks_left=int(self.masked.sum()),
            forward_ms=(forwarded - started) * 1e3,
            decide_ms=(decided - forwarded) * 1e3,
            flops=ledger.parts(),
            recomputed=ledger.recomputed() / (self.canvas.numel() * len(self.branches)),
            recording=job.recorder.record(view, plan, logits, candidates),
            guided=guided,
        )
        self.step_index += 1
        return event

    def _branch(self, index: int) -> Branch:
        job, policy = self.job, self.job.make_policy()
        if index == 0:
            policy = job.recorder.watch(policy)
        policy.start(self.run)
        adapter, run = job.adapter, self.run
        store = ActivationStore(
            adapter.info, policy.sites(run), run.batch, run.length, adapter.dtype, adapter.device
        )
        return Branch(policy, store, job.recorder.tap(adapter, store) if index == 0 else adapter)

    def _view(self, block: slice, block_index: int, block_step: int) -> StepView:
        device = self.canvas.device
        policy, masked = self.branches[0].policy, self.masked.copy()
        rows = self.job.unmasker.rows(masked, block, policy.edge(masked, block))
        watched = policy.watch(self.step_index, masked, block)
        eligible = rows if watched is None else rows & watched
        assert (eligible.any(1) == rows.any(1)).all(), "a policy left an open block out"
        order = self.job.unmasker.order(rows, block, block_step, self.noise, eligible)
        if order is not None and policy.follows_order:
            rows = mark(order, self.run.length)
        needs, real = pack(rows if watched is None else watched, device)
        if watched is not None:
            real &= torch.from_numpy(rows).to(device).gather(1, needs)
        return StepView(
            run=self.run,
            step=self.step_index,
            block=block,
            block_index=block_index,
            block_step=block_step,
            canvas=self.canvas,
            masked=torch.from_numpy(masked).to(device),
            needs=torch.where(real.any(1, keepdim=True), needs, block.stop - 1),
            real=real,
            masked_host=masked,
            order=order,
        )

    def _logits(self, view: StepView, ledger: Ledger) -> tuple[StepPlan, Tensor]:
        """The first branch's plan and the logits [B, n, V] of `view.needs`, guided and shifted."""
        plan, z = self._forward(self.branches[0], view, self.canvas, self.job.recorder, ledger)
        if len(self.branches) > 1:
            blind = self.canvas.masked_fill(self.given, self.run.info.mask_id)

            def unconditional(clock: int) -> Tensor:
                own = replace(view, step=clock, canvas=blind)
                return self._forward(self.branches[1], own, blind, Recorder(), ledger)[1]

            z = self.guide.mix(view, z, unconditional)
        z[..., self.run.info.mask_id] = -torch.inf
        if self.job.spec.eos_suppress == "logits":
            eos.suppress_logits(z, self.run.info.eos_id)
        self.job.unmasker.restrict(z)
        return plan, z

    def _forward(
        self, branch: Branch, view: StepView, canvas: Tensor, recorder: Recorder, ledger: Ledger
    ) -> tuple[StepPlan, Tensor]:
        recorder.begin(view)
        plan = branch.policy.begin_step(view)
        rows, extra = view.logit_rows, recorder.extra_rows(view, plan)
        wanted = rows if extra is None else torch.cat((rows, extra), 1)
        z = forward(
            branch.adapter,
            branch.store,
            branch.policy,
            plan,
            canvas,
            self.pad_mask,
            wanted,
            ledger,
            recorder.unread if extra is None else "carry",
        )
        if extra is not None:
            recorder.see(view, z[:, rows.shape[1] :].clone())
        return plan, z[:, : rows.shape[1]]

    def _candidates(self, logits: Tensor, view: StepView) -> Candidates:
        spec = self.job.spec
        rule = self.job.unmasker
        found = propose(logits, view.real, rule.score, spec.temperature, self.noise, rule.shaping)
        if spec.eos_suppress == "confidence":
            return eos.suppress_confidence(found, self.run.info.stop_ids)
        return replace(found, logits=logits) if rule.guided else found

    def _commit(
        self, candidates: Candidates, view: StepView
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """Apply the unmasker's choice and the end-of-text rule; what changed, one row a token."""
        commit = self.job.unmasker.commit(candidates, view)
        chosen = commit.mask & view.real
        for branch in self.branches:
            branch.policy.end_step(view, candidates.confidence, chosen)
        chosen_host, needs = chosen.cpu().numpy(), view.needs.cpu().numpy()
        idle = view.real.cpu().numpy().any(1) & ~chosen_host.any(1)
        if idle.any() and not self.job.unmasker.may_skip(view):
            raise RuntimeError("nothing could be committed; the logits may not be finite numbers")
        sequences, places = np.nonzero(chosen_host)
        positions = needs[sequences, places]
        ids = commit.ids.cpu().numpy()[sequences, places]
        confidence = candidates.confidence.float().cpu().numpy()[sequences, places]
        self._write(sequences, positions, ids)
        info = self.run.info
        rule = self.job.unmasker.ending(self.job.spec.eos)
        fill = eos.ended_rows(rule, self.ids, self.masked, info.stop_ids, self.run.prompt_length)
        if fill.any():
            more, where = np.nonzero(fill)
            self._write(more, where, np.full(len(more), info.eos_id))
            sequences, positions = np.append(sequences, more), np.append(positions, where)
            ids = np.append(ids, np.full(len(more), info.eos_id))
            confidence = np.append(confidence, np.full(len(more), np.nan, np.float32))
        return sequences, positions, ids, confidence

    def _write(self, sequences: np.ndarray, positions: np.ndarray, ids: np.ndarray) -> None:
        self.ids[sequences, positions] = ids
        self.masked[sequences, positions] = False
        where = torch.from_numpy(np.stack((sequences, positions))).to(self.canvas.device)
        self.canvas[where[0], where[1]] = torch.from_numpy(ids).to(self.canvas)


def denoise(state: Denoiser) -> Iterator[StepEvent]:
    """Decode block by block until no mask is left; who stops asking for events stops the run.

    A block is left as soon as nothing in it is masked, so no forward is spent on a finished one.
    """
    job = state.job
    for index in range(job.spec.blocks):
        start = job.prompt_length + index * job.spec.block_length
        block, block_step = slice(start, start + job.spec.block_length), 0
        while state.open_rows(block).any():
            yield state.step(block, index, block_step)
            block_step += 1
