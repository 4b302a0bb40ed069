"""Job: one run, ready to be decoded, and how a batch of runs that differ in pace is split."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from copy import deepcopy
from dataclasses import dataclass, field, replace

from torch import Tensor

from engine.cache.base import CachePolicy, RunInfo
from engine.config.spec import RunSpec
from engine.generate.capturers import Capturer
from engine.guider.match import RunGuider
from engine.models.base import ModelAdapter
from engine.record.recorder import Recorder
from engine.unmask.base import Unmasker
from engine.unmask.schedule import BlockProgress


@dataclass
class Job:
    """One run, ready: the first canvas and the parts that decide.

    `canvas` [B, T] int64 on the CPU, mask ids where something is to be generated; `prompt_length`
    is P, prompts are padded on the left; `pad_mask` [B, T] bool or None; `fixed_mask` [B, T] bool
    marks given answer tokens; `first` is the number of its first sequence, which seeds its
    noise; `make_policy` gives a fresh policy, one a guidance branch. Of a branch, which is one
    sequence, `known_mask` [1, T] bool marks the answer tokens that are known, and `begun` says by
    the first position of a block how far its schedule has come. `guiding` is there where the
    unmasker is guided, `capturer` where forwards are captured and replayed.
    """

    adapter: ModelAdapter
    spec: RunSpec
    canvas: Tensor
    prompt_length: int
    make_policy: Callable[[], CachePolicy]
    unmasker: Unmasker
    pad_mask: Tensor | None = None
    fixed_mask: Tensor | None = None
    recorder: Recorder = field(default_factory=Recorder)
    first: int = 0
    known_mask: Tensor | None = None
    begun: Mapping[int, BlockProgress] = field(default_factory=dict)
    guiding: RunGuider | None = None
    capturer: Capturer | None = None

    def run_info(self) -> RunInfo:
        """What a policy may know of the run."""
        spec, pad_mask = self.spec, self.pad_mask
        run = RunInfo(
            self.adapter.info,
            len(self.canvas),
            self.prompt_length,
            spec.gen_length,
            spec.block_length,
            spec.cfg_scale > 0,
            () if pad_mask is None else tuple((~pad_mask).sum(1).tolist()),
        )
        assert self.canvas.shape[1] == run.length, "canvas: prompt and answer make the length"
        return run

    def steps_before(self, block: slice) -> int:
        """Steps of its schedule that a block has had before this run."""
        return self.begun[block.start].steps if block.start in self.begun else 0


def split(job: Job) -> list[Job]:
    """Jobs that together decode what a batch asks for, each sequence as it would be alone.

    One job where the sequences keep in step or may wait for each other; one a sequence where
    some may finish a block early and the policy counts the steps that they would wait.
    """
    batch, spec, policy = len(job.canvas), job.spec, job.make_policy()
    shares = job.unmasker.shares(spec.block_length, max(spec.steps // spec.blocks, 1))
    in_step = shares is not None and spec.eos == "official" and policy.can_commit(max(shares))
    if batch == 1 or in_step or policy.may_wait:
        return [job]
    return [
        replace(
            job,
            guiding=job.guiding and job.guiding.alone(i),
            canvas=job.canvas[i : i + 1],
            pad_mask=None if job.pad_mask is None else job.pad_mask[i : i + 1],
            fixed_mask=None if job.fixed_mask is None else job.fixed_mask[i : i + 1],
            unmasker=deepcopy(job.unmasker),
            first=job.first + i,
        )
        for i in range(batch)
    ]
