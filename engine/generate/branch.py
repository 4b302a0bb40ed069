"""Branches: a run that continues from a recorded step of another run, its parent.

The canvas and the schedule continue from the parent's step. Everything else starts again: step
numbers at 0, so that the first step computes every row, and the noise from the seed, and with it
a random order. The parent's trace is only read; it must not grow meanwhile.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate

import numpy as np
import torch

from engine.catalog import unmaskers
from engine.config.blocks import BlockGrid
from engine.config.branch_start import REMASK, BranchStart
from engine.config.plan import quota
from engine.config.spec import RunSpec
from engine.generate.end_of_text import decoded_stops, find_stops, positions_to_fill
from engine.generate.job import Job
from engine.trace.trace import Trace
from engine.unmask.schedule import BlockProgress


@dataclass(frozen=True)
class BranchPoint:
    """The state that a branch starts from.

    `answer` [A] int64 holds the ids, REMASK at masked positions; `progress` maps the first offset
    of a block, negative if the prompt shares it, to what the parent did in it.
    """

    answer: np.ndarray
    progress: Mapping[int, BlockProgress]


def branch_point(
    spec: RunSpec, parents: Mapping[str, Trace], prompt: Sequence[int]
) -> BranchPoint | None:
    """The branch point of a spec over the ids `prompt`; None if it has no `start`.

    Raises ValueError naming `start.trace`, `start.step`, `start.edits`, `model`, `gen_length`,
    `block_length`, `images`, `suffix`, `prompt` or `fixed` if the parent is missing or does not
    fit.
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
    _check_canvas(spec, parent, canvas, prompt)
    answer = canvas[_answer(spec, parent)].astype(np.int64)
    model = parent.meta["model"]
    size, mask_id = model.get("vocab_size", 0), model.get("mask_id")
    answer[answer == mask_id] = REMASK
    unedited = answer.copy()
    for offset, token in start.edits:
        if token >= size or token == mask_id:
            raise ValueError(
                f"start.edits: token id {token} is not one of the model's {size}, or its mask; use "
                f"{REMASK} to mask a position again"
            )
        answer[offset] = token
    return BranchPoint(answer, _block_progress(spec, parent, start.step, unedited, answer))


def branch_job(job: Job, point: BranchPoint) -> Job:
    """The job of one sequence, started from a branch point.

    Raises ValueError naming `start.trace` if the answer holds ids that the model does not have.
    """
    info, width = job.adapter.info, job.prompt_length
    assert len(job.canvas) == 1, "a branch is one sequence"
    answer = torch.from_numpy(point.answer)
    known = torch.zeros(job.canvas.shape, dtype=torch.bool)
    known[0, width : width + len(answer)] = answer != REMASK
    canvas = job.canvas.clone()
    canvas[known] = answer[answer != REMASK]
    if ((canvas[known] >= info.vocab_size) | (canvas[known] == info.mask_id)).any():
        raise ValueError(
            "start.trace: its answer holds token ids that this model does not have; branch from a "
            "run of this model"
        )
    progress = {width + offset: block for offset, block in point.progress.items()}
    return replace(job, canvas=canvas, known_mask=known, progress=progress)


def _check_parent(spec: RunSpec, parent: Trace, start: BranchStart) -> None:
    """Raise ValueError if the parent has no such step, or another model or length."""
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
    length = parent.meta["spec"].get("gen_length")
    held = len(parent.arrays()["canvas"]) - parent.prompt_length
    known = {"gen_length": length if type(length) is int and length <= held else held}
    if parent.block_causal:
        known["block_length"] = RunSpec.from_dict(parent.meta["spec"]).block_length
    for name, value in known.items():
        if getattr(spec, name) != value:
            raise ValueError(
                f"{name}: {getattr(spec, name)} is not that of the run to go on from; set it to "
                f"{value}"
            )


def _answer(spec: RunSpec, parent: Trace) -> slice:
    """The positions of the answer on the parent's canvas; all behind the prompt if block-causal."""
    if parent.block_causal:  # the canvas is rounded up to whole blocks
        return slice(parent.prompt_length, len(parent.arrays()["canvas"]))
    return slice(parent.prompt_length, parent.prompt_length + spec.gen_length)


def _check_canvas(spec: RunSpec, parent: Trace, canvas: np.ndarray, prompt: Sequence[int]) -> None:
    """Raise ValueError if the parent has another prompt, image or suffix, or other given tokens."""
    arrays, width = parent.arrays(), parent.prompt_length
    for name in ("images", "suffix"):
        if (before := parent.meta["spec"].get(name) or None) != (spec.to_dict()[name] or None):
            raise ValueError(
                f"{name}: not that of the run to go on from, which is "
                f"{str(before or 'empty')[:200]}; set it so"
            )
    leading = arrays["prompt_mask"][:width].all()
    if not leading or canvas[:width].tolist() != list(prompt):
        raise ValueError(
            "prompt: it is not that of the run to go on from; a branch keeps the prompt and the "
            "chat template"
        )
    answer = _answer(spec, parent)
    given = np.flatnonzero(arrays["fixed_mask"][answer])
    pairs = tuple(zip(given.tolist(), canvas[answer][given].tolist(), strict=True))
    if pairs != spec.fixed:
        raise ValueError(
            "fixed: the given tokens are not those of the run to go on from; leave them as they "
            "were and use start.edits for other positions"
        )


def _block_progress(
    spec: RunSpec, parent: Trace, step: int, unedited: np.ndarray, answer: np.ndarray
) -> dict[int, BlockProgress]:
    """The progress of each block before `step` by its first offset; blocks not begun are left out.

    It is read from the parent's arrays. If they do not give it, or known tokens were masked
    again, it is derived from the number of known tokens, which keeps the number of tokens a step.
    `unedited` and `answer` are the ids [A] before and after the edits.
    """
    if not unmaskers()[spec.unmasker].scheduled:
        return {}
    recorded = _recorded_progress(spec, parent, step)
    free = np.ones(len(answer), bool)
    free[[offset for offset, _ in spec.fixed]] = False
    remasked = (unedited != REMASK) & (answer == REMASK)
    found = {}
    for first, block in _answer_blocks(spec, parent):
        if first in recorded and not remasked[block].any():
            found[first] = recorded[first]
        else:
            initial, left = int(free[block].sum()), int((answer[block] == REMASK).sum())
            initial = initial + max(-first, 0)
            due = accumulate(quota(initial, spec.steps // spec.blocks))
            found[first] = BlockProgress(initial, sum(n <= initial - left for n in due))
    return {first: progress for first, progress in found.items() if progress.steps_done}


def _recorded_progress(spec: RunSpec, parent: Trace, step: int) -> dict[int, BlockProgress]:
    """The progress of the parent's blocks before its step `step`, by first offset.

    Empty if the parent had another schedule. If the parent is a branch itself, only the blocks in
    which it took steps.
    """
    parent_spec = RunSpec.from_dict(parent.meta["spec"])
    rule = unmaskers().get(parent_spec.unmasker)
    same = (parent_spec.steps, parent_spec.block_length) == (spec.steps, spec.block_length)
    if rule is None or not rule.scheduled or not same:
        return {}
    answer = _answer(spec, parent)
    arrays, revealed = parent.arrays(), parent.step_map()[answer]
    free = ~arrays["fixed_mask"][answer]
    masked = arrays["canvas"][answer] == parent.meta["model"].get("mask_id")
    never = free & masked & (revealed < 0)
    ended = _after_given_end(parent_spec, parent, free)
    found = {}
    for index, (first, block) in enumerate(_answer_blocks(spec, parent)):
        steps = np.flatnonzero(arrays["block"] == index)
        numbers, earlier = arrays["block_step"][steps], int((steps < step).sum())
        if len(steps) == 0:
            if parent_spec.start is None:
                found[first] = BlockProgress(0, 0)
            continue
        initial = free[block] & ~ended[block]
        if numbers[0] == 0:  # the block was new: tokens known by then count as given
            initial = never[block] | (revealed[block] >= steps[0])
            initial &= ~after_stop(spec, parent, int(steps[0]))[answer][block]
        # A step that computes known rows alone has the number of the step after it.
        done = int(numbers[earlier]) if earlier < len(numbers) else int(numbers[-1]) + 1
        found[first] = BlockProgress(int(initial.sum()) + max(-first, 0), done)
    return found


def _after_given_end(spec: RunSpec, parent: Trace, free: np.ndarray) -> np.ndarray:
    """Answer positions [A] that a run of `spec` fills, or that a stop ends, before its first step.

    `free` [A] bool are those that are not given.
    """
    given = [REMASK] * len(free)
    for offset, token in spec.fixed:
        given[offset] = token
    ids, stops = np.array([given]), tuple(parent.meta["model"].get("stop_ids", ()))
    block_stops = None
    if parent.block_causal:
        block_stops = decoded_stops(free[None], spec.block_length, -parent.prompt_length)
    filled: np.ndarray = positions_to_fill(spec.eos, ids, free[None], stops, 0, block_stops)[0]
    (stop,) = find_stops(ids, free[None], parent.meta.get("stops", ()))
    return filled | (np.arange(len(free)) >= stop)


def after_stop(spec: RunSpec, trace: Trace, step: int) -> np.ndarray:
    """The positions [T] bool from the answer's first stop text on, if it has one before a step."""
    answer, ids = _answer(spec, trace), trace.canvas_at(step)
    masked = ids == trace.meta["model"].get("mask_id")
    (stop,) = find_stops(ids[None, answer], masked[None, answer], trace.meta.get("stops", ()))
    found: np.ndarray = np.arange(len(ids)) >= answer.start + stop
    return found


def _answer_blocks(spec: RunSpec, parent: Trace) -> Iterator[tuple[int, slice]]:
    """The first offset of each block, negative if the prompt shares it, and its answer offsets."""
    width = parent.prompt_length
    grid = BlockGrid.of(width, spec.gen_length, spec.block_length, parent.block_causal)
    for block in grid:
        yield block.start - width, slice(max(block.start - width, 0), block.stop - width)
