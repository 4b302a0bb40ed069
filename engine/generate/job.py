"""Job: a run that is ready to decode, and the split of a batch whose sequences differ in pace."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from copy import deepcopy
from dataclasses import dataclass, field, replace

import numpy as np
import torch
from torch import Tensor

from engine.cache.base import CachePolicy, RunInfo
from engine.cache.stack import Stack
from engine.config.blocks import BlockGrid
from engine.config.spec import RunSpec
from engine.generate.capture.capturers import Capturer
from engine.generate.end_of_text import decoded_stops, positions_to_fill
from engine.guider.run_guider import RunGuider
from engine.models.base import ModelAdapter
from engine.record.recorder import Recorder
from engine.unmask.base import Unmasker
from engine.unmask.schedule import BlockProgress


@dataclass
class Job:
    """A run that is ready to decode.

    `canvas` [B, T] int64 on the CPU holds the mask id at positions to generate; prompts shorter
    than `prompt_length` are padded on the left. `pad_mask` [B, T] bool is False at padding, None
    without any; `fixed_mask` [B, T] bool is True at answer tokens given by the spec and at the
    suffix, the last `suffix_length` positions. Each of `stops` is a series of ids that ends the
    answer: later positions stay as they are. `make_policy`
    returns a new policy for each guidance branch. `first_sequence` numbers the first sequence.
    `seeds` are those of the sequences' random numbers; empty: that of the spec plus the sequence's
    number. `known_mask` [B, T] bool marks answer tokens that are known before the first step and
    not given: those behind a given end of text (`filled_after_end`) and, in a branch of another
    run, those of its parent; `progress` is what the parent did in each block (see Schedule).
    Without a `capturer` every forward runs eagerly.
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
    first_sequence: int = 0
    seeds: tuple[int, ...] = ()
    known_mask: Tensor | None = None
    progress: Mapping[int, BlockProgress] = field(default_factory=dict)
    run_guider: RunGuider | None = None
    capturer: Capturer | None = None
    suffix_length: int = 0
    stops: tuple[tuple[int, ...], ...] = ()

    def run_info(self) -> RunInfo:
        """The sizes of the run, for policies."""
        spec, pad_mask = self.spec, self.pad_mask
        run = RunInfo(
            self.adapter.info,
            len(self.canvas),
            self.prompt_length,
            self.canvas.shape[1] - self.prompt_length - self.suffix_length,
            spec.block_length,
            spec.cfg_scale > 0,
            () if pad_mask is None else tuple((~pad_mask).sum(1).tolist()),
            self.suffix_length,
            self.sequence_seeds,
        )
        assert self.canvas.shape[1] == run.length, (
            "canvas: prompt, answer and the last block's rest"
        )
        return run

    def given(self) -> np.ndarray:
        """Where the canvas holds the prompt, padding, given tokens or the suffix, [B, T] bool."""
        given = np.ones(self.canvas.shape, bool)
        given[:, self.prompt_length :] = False
        return given if self.fixed_mask is None else given | self.fixed_mask.numpy()

    def masked(self) -> np.ndarray:
        """The positions to generate, [B, T] bool."""
        masked = ~self.given()
        return masked if self.known_mask is None else masked & ~self.known_mask.numpy()

    @property
    def sequence_seeds(self) -> tuple[int, ...]:
        """The seed of each sequence's random numbers."""
        first = self.spec.seed + self.first_sequence
        return self.seeds or tuple(range(first, first + len(self.canvas)))

    @property
    def aligned(self) -> bool:
        """Whether the blocks of all sequences lie at the same positions of the canvas."""
        padding = self._block_padding
        return padding is None or not (padding % self.spec.block_length).any()

    @property
    def fills_together(self) -> bool:
        """Whether all or none of the sequences have a whole block of prompt."""
        padding = self._block_padding
        if padding is None:
            return True
        whole = self.prompt_length - padding >= self.spec.block_length
        return bool((whole == whole[0]).all())

    @property
    def _block_padding(self) -> Tensor | None:
        """The padding rows [B] of a block-causal model's sequences; None without any."""
        if self.pad_mask is None or not self.adapter.info.block_causal:
            return None
        return (~self.pad_mask).sum(1)

    def decoded_stops(self) -> np.ndarray | None:
        """Where the decoded blocks of a block-causal model end, [B, 1]; None for other models.

        The blocks of a sequence lie on multiples of their size behind its padding.
        """
        if not self.adapter.info.block_causal:
            return None
        padding = 0 if self._block_padding is None else self._block_padding.numpy()
        return decoded_stops(self.masked(), self.spec.block_length, padding)

    def steps_before(self, block: slice) -> int:
        """Steps that the parent run spent on a block."""
        return self.progress[block.start].steps_done if block.start in self.progress else 0


def filled_after_end(job: Job) -> Job:
    """The job after the end-of-text rule has filled what it fills before the first step.

    It fills positions behind an end of text that is given, or known from the run that this one
    continues.
    """
    info, masked = job.adapter.info, job.masked()
    if not masked.any():
        return job
    fill = positions_to_fill(
        job.unmasker.end_of_text_rule(job.spec.eos), job.canvas.numpy(), masked, info.stop_ids,
        job.prompt_length, job.decoded_stops(),
    )  # fmt: skip
    if not fill.any():
        return job
    filled = torch.from_numpy(fill)
    known = filled if job.known_mask is None else job.known_mask | filled
    return replace(job, canvas=job.canvas.masked_fill(filled, info.fill_id), known_mask=known)


def split(job: Job) -> list[Job]:
    """Split a batch into jobs that decode each sequence as it would be decoded alone.

    The batch stays whole if its sequences finish their blocks in the same step, or if a finished
    one may wait for the others. Otherwise each sequence gets a job of its own, and so it does if
    their blocks lie at different positions. If a policy reuses rows within layers, the first blocks
    of all sequences must also be computed in the same steps, since its refreshes count from there.
    A batch is also split if the rows of a step follow from all its sequences.
    """
    batch, spec, policy = len(job.canvas), job.spec, job.make_policy()
    counts = job.unmasker.planned_counts(spec.block_length, max(spec.steps // spec.blocks, 1))
    in_step = counts is not None and spec.eos == "official" and policy.can_commit(max(counts))
    together = job.aligned and not job.stops and not policy.shares_rows
    if isinstance(policy, Stack):
        together = together and job.fills_together
    if batch == 1 or (together and (in_step or policy.speedups.may_wait)):
        return [job]
    alone = [
        replace(
            job,
            run_guider=job.run_guider and job.run_guider.for_sequence(i),
            canvas=job.canvas[i : i + 1],
            pad_mask=None if job.pad_mask is None else job.pad_mask[i : i + 1],
            fixed_mask=None if job.fixed_mask is None else job.fixed_mask[i : i + 1],
            known_mask=None if job.known_mask is None else job.known_mask[i : i + 1],
            unmasker=deepcopy(job.unmasker),
            first_sequence=job.first_sequence + i,
            seeds=job.seeds[i : i + 1],
        )
        for i in range(batch)
    ]
    return [one if one._block_padding is None else _without_padding(one) for one in alone]


def _without_padding(job: Job) -> Job:
    """The job of one sequence of a block-causal model, whose first token is at position 0."""
    assert job.pad_mask is not None, "a job without padding is aligned"
    padding = int((~job.pad_mask).sum())
    prompt, spec = job.prompt_length - padding, job.spec
    length = BlockGrid.of(prompt, spec.gen_length, spec.block_length, True).stop
    canvas = torch.full((1, length), job.adapter.info.mask_id)
    width = min(length, job.canvas.shape[1] - padding)
    canvas[:, :width] = job.canvas[:, padding : padding + width]

    def moved(mask: Tensor | None) -> Tensor | None:
        if mask is None:
            return None
        found = torch.zeros(canvas.shape, dtype=torch.bool)
        found[:, :width] = mask[:, padding : padding + width]
        return found

    return replace(
        job, canvas=canvas, prompt_length=prompt, pad_mask=None,
        fixed_mask=moved(job.fixed_mask), known_mask=moved(job.known_mask),
    )  # fmt: skip
