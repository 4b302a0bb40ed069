"""Branch: a run that goes on from a recorded step of another one, its parent.

The canvas and the schedule go on where the parent stood. Everything else begins afresh: step and
policy clocks at 0, so that the first step computes every row, the noise with the seed, and with
it a random order of reveal. The parent's trace is read only; it must not grow meanwhile.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate

import numpy as np
import torch

from engine.catalog import unmaskers
from engine.config.branch_start import REMASK, Start
from engine.config.plan import quota
from engine.config.spec import RunSpec
from engine.generate.job import Job
from engine.trace.trace import Trace
from engine.unmask.schedule import BlockProgress


@dataclass(frozen=True)
class BranchPoint:
    """Where a branch goes on: `answer` [gen_length] int64 ids, REMASK where a position is open.

    `begun` tells by the first offset of a block how far its schedule has come.
    """

    answer: np.ndarray
    begun: Mapping[int, BlockProgress]


def branch_point(
    spec: RunSpec, parents: Mapping[str, Trace], prompt: Sequence[int]
) -> BranchPoint | None:
    """Where a spec over the ids `prompt` goes on; None where it begins afresh.

    Raises ValueError naming `start.trace`, `start.step`, `start.edits`, `model`, `gen_length`,
    `prompt` or `fixed` where the parent is not there or does not fit.
    """
    start = spec.start
    if start is None:
        return None
    parent = parents.get(start.trace)
    if parent is None:
        raise ValueError(
            f"start.trace: {start.trace!r} is no longer held; run it again and branch from that"
        )
    _check_parent(spec, parent, start)
    canvas = parent.canvas_at(start.step)
    width = len(canvas) - spec.gen_length
    _check_canvas(spec, parent, canvas, prompt)
    answer = canvas[width:].astype(np.int64)
    answer[answer == parent.meta["model"].get("mask_id")] = REMASK
    before = answer.copy()
    for offset, token in start.edits:
        _check_token(token, parent.meta["model"])
        answer[offset] = token
    return BranchPoint(answer, _schedules(spec, parent, start.step, before, answer))


def branched(job: Job, point: BranchPoint) -> Job:
    """The job of one sequence, going on from a point.

    Raises ValueError naming `start.trace` where the answer holds ids that the model lacks.
    """
    info, width = job.adapter.info, job.prompt_length
    assert len(job.canvas) == 1, "a branch is one sequence"
    answer = torch.from_numpy(point.answer)
    known = torch.zeros(job.canvas.shape, dtype=torch.bool)
    known[0, width:] = answer != REMASK
    canvas = job.canvas.clone()
    canvas[known] = answer[answer != REMASK]
    if ((canvas[known] >= info.vocab_size) | (canvas[known] == info.mask_id)).any():
        raise ValueError(
            "start.trace: its answer holds token ids that this model does not have; branch from a "
            "run of this model"
        )
    begun = {width + offset: block for offset, block in point.begun.items()}
    return replace(job, canvas=canvas, known_mask=known, begun=begun)


def _check_parent(spec: RunSpec, parent: Trace, start: Start) -> None:
    """ValueError where the parent has no such step, or is of another model or length."""
    if "spec" not in parent.meta:
        raise ValueError(f"start.trace: {start.trace!r} has not begun; branch from a step of it")
    if start.step > parent.steps:
        raise ValueError(
            f"start.step: {start.step} is outside 0 to {parent.steps}, the steps of the trace; "
            f"the nearest valid value is {parent.steps}"
        )
    name = parent.meta["model"].get("name")
    if name != spec.model:
        raise ValueError(
            f"model: {spec.model!r} is not that of the run to go on from; choose {name!r}"
        )
    length = int((~parent.arrays()["prompt_mask"]).sum())
    if length != spec.gen_length:
        raise ValueError(
            f"gen_length: {spec.gen_length} is not that of the run to go on from; set it to "
            f"{length}"
        )


def _check_canvas(spec: RunSpec, parent: Trace, canvas: np.ndarray, prompt: Sequence[int]) -> None:
    """ValueError where the parent had another prompt or other given tokens."""
    arrays, width = parent.arrays(), len(canvas) - spec.gen_length
    leading = arrays["prompt_mask"][:width].all()
    if not leading or canvas[:width].tolist() != list(prompt):
        raise ValueError(
            "prompt: it is not that of the run to go on from; a branch keeps the prompt and the "
            "chat template"
        )
    given = np.flatnonzero(arrays["fixed_mask"][width:])
    pairs = tuple(zip(given.tolist(), canvas[width:][given].tolist(), strict=True))
    if pairs != spec.fixed:
        raise ValueError(
            "fixed: the given tokens are not those of the run to go on from; leave them as they "
            "were and use start.edits for other positions"
        )


def _check_token(token: int, model: Mapping[str, object]) -> None:
    size = model.get("vocab_size")
    assert isinstance(size, int), "a trace knows its vocabulary"
    if token >= size or token == model.get("mask_id"):
        raise ValueError(
            f"start.edits: token id {token} is not one of the model's {size}, or its mask; use "
            f"{REMASK} to mask a position again"
        )


def _schedules(
    spec: RunSpec, parent: Trace, step: int, before: np.ndarray, answer: np.ndarray
) -> dict[int, BlockProgress]:
    """Where the schedule of each block stands, by its first offset; blocks not named are new.

    As the parent's arrays tell it; by the number of known tokens where they do not, and where
    known tokens were masked again, so that the pace stays. `before` and `answer` are the ids
    [gen_length] before and after the edits.
    """
    if not unmaskers()[spec.unmasker].scheduled:
        return {}
    told = _told(spec, parent, step)
    free = np.ones(spec.gen_length, bool)
    free[[offset for offset, _ in spec.fixed]] = False
    again = (before != REMASK) & (answer == REMASK)
    found = {}
    for first in range(0, spec.gen_length, spec.block_length):
        block = slice(first, first + spec.block_length)
        if first in told and not again[block].any():
            found[first] = told[first]
        else:
            opened, left = int(free[block].sum()), int((answer[block] == REMASK).sum())
            found[first] = _paced(opened, left, spec.steps // spec.blocks)
    return {first: begun for first, begun in found.items() if begun.steps}


def _told(spec: RunSpec, parent: Trace, step: int) -> dict[int, BlockProgress]:
    """What the parent's arrays tell of its blocks, by first offset, before its step `step`.

    Nothing where it kept another schedule; of a branch, only the blocks in which it took steps.
    """
    was = RunSpec.from_dict(parent.meta["spec"])
    rule = unmaskers().get(was.unmasker)
    alike = (was.steps, was.block_length) == (spec.steps, spec.block_length)
    if rule is None or not rule.scheduled or not alike:
        return {}
    arrays, revealed = parent.arrays(), parent.step_map()[-spec.gen_length :]
    free = ~arrays["fixed_mask"][-spec.gen_length :]
    at_first = arrays["canvas"][-spec.gen_length :] == parent.meta["model"].get("mask_id")
    never = free & at_first & (revealed < 0)
    told = {}
    for index in range(spec.blocks):
        block = slice(index * spec.block_length, (index + 1) * spec.block_length)
        taken = np.flatnonzero(arrays["block"] == index)
        counts, earlier = arrays["block_step"][taken], int((taken < step).sum())
        if len(taken) == 0:
            if was.start is None:
                told[block.start] = BlockProgress(0, 0)
            continue
        opened = free[block]
        if counts[0] == 0:  # the block was new: what was known by then counts as given
            opened = never[block] | (revealed[block] >= taken[0])
        had = int(counts[earlier - 1]) + 1 if earlier else int(counts[0])
        told[block.start] = BlockProgress(int(opened.sum()), had)
    return told


def _paced(opened: int, left: int, steps: int) -> BlockProgress:
    """A schedule of `steps` steps at the last step by which it owes no more than is known."""
    return BlockProgress(opened, sum(n <= opened - left for n in accumulate(quota(opened, steps))))
