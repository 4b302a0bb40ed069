"""What if: the tokens that a recorded step would have committed under other settings.

No forward is computed: the engine's own unmasker chooses from the recorded proposals. The schedule
continues as that of a branch from the step (engine.generate.branch), so that with the settings of
the run the result is exactly what the step committed.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import torch

from engine.cache.base import HostState, RunInfo, StepView
from engine.catalog import derive_plan, make_unmasker, text_knobs_of_methods, unmaskers
from engine.config.branch_start import REMASK, BranchStart
from engine.config.knobs import describe_fields
from engine.config.spec import RunSpec
from engine.generate.branch import BranchPoint, after_stop, branch_point
from engine.generate.end_of_text import positions_to_fill
from engine.generate.recorded_step import (
    OldTraceError,
    RecordedStep,
    Sampling,
    UnknownAnswerError,
)
from engine.generate.step_state import shared_progress
from engine.models.base import ModelInfo
from engine.trace.trace import Trace
from engine.unmask.base import Unmasker

NONE, COMMITTED, FILLED = range(3)  # of a position in a step; filled: by the end-of-text rule
FIELDS = ("unmasker", "temperature")
PARENT = "what-if"
OTHER_LOGITS = (
    "padding_penalty: the recorded probabilities were computed with another penalty in this step. "
    "Branch to run it."
)


@dataclass(frozen=True)
class WhatIf:
    """What a step would have committed, by position, in rising order, [m] each.

    `ids` and `confidence` are of the token that could be committed, `score` what it is ranked by,
    NaN for positions that the rule could not choose; `chance` [m, 2] bounds the probability that
    a temperature draws this token. `would` and `did` are NONE, COMMITTED or FILLED, with these
    settings and in the run, and `did_ids` what the run committed, -1 for nothing.

    `own`: the settings are those of the run. `possible`: a run may have them. `unknown` are
    sentences that say what the recording does not tell; without any, the result is exact. `notes`
    say what else to know. `refusal` says why nothing can be computed; the arrays then hold what the
    run committed.
    """

    positions: np.ndarray
    ids: np.ndarray
    confidence: np.ndarray
    score: np.ndarray
    chance: np.ndarray
    would: np.ndarray
    did: np.ndarray
    did_ids: np.ndarray
    own: bool
    possible: bool = True
    unknown: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    refusal: str = ""


class _Choice(NamedTuple):
    """The result of the rule: the candidates' positions and values, commits and fills [T] bool."""

    step: RecordedStep
    ids: np.ndarray
    confidence: np.ndarray
    score: np.ndarray
    chance: np.ndarray
    committed: np.ndarray
    filled: np.ndarray
    fill_id: int
    unknown: tuple[str, ...]
    notes: tuple[str, ...]


def what_if(trace: Trace, step: int, settings: Mapping[str, str]) -> dict[str, Any]:
    """What the step `step` (from 0) of a trace would have committed under `settings`.

    `settings` are in the form of RunSpec.flat: `unmasker`, `temperature` and the unmasker's knobs;
    what is left out stays as in the run. Returns the fields of WhatIf; `query`, the settings of a
    branch as RunSpec.to_query; and for a form `rule`, `run_rule`, `rules` (name and title),
    `knobs` of the rule, as knobs.describe_fields with `value` and `run` (None: the run has another
    rule), and the `temperature` in the same form. Raises ValueError naming the field that is
    wrong, or what the trace lacks.
    """
    run_spec = _plain(RunSpec.from_dict(trace.meta["spec"]))
    spec = changed_spec(run_spec, settings)
    if not 0 <= step < trace.steps:
        raise ValueError(f"step: expected a step of the trace, from 0 to {trace.steps - 1}")
    found = _decide(trace, step, run_spec, spec)
    return {f.name: getattr(found, f.name) for f in dataclasses.fields(found)} | {
        "query": spec.to_query(),
        **_form(run_spec, spec),
    }


def changed_spec(run_spec: RunSpec, settings: Mapping[str, str]) -> RunSpec:
    """The spec of a run with `unmasker`, `temperature` and knobs of the unmasker changed.

    Raises ValueError naming the field.
    """
    rule = settings.get("unmasker", run_spec.unmasker)
    for name in settings:
        if name not in FIELDS and not name.startswith(f"{rule}."):
            raise ValueError(
                f"{name[:60]}: a what-if changes {', '.join(FIELDS)} and settings of {rule[:60]}"
            )
    kept = {
        name: value for name, value in run_spec.flat().items()
        if rule == run_spec.unmasker or not name.startswith(f"{run_spec.unmasker}.")
    }  # fmt: skip
    spec = RunSpec.from_flat(kept | dict(settings), text_knobs_of_methods())
    make_unmasker(spec)
    return spec


def _plain(spec: RunSpec) -> RunSpec:
    """A run's spec without its recording and its start."""
    base = RunSpec()
    names = ("record", "probe_at", "probe_steps", "record_layers", "record_quantities",
             "record_every", "record_positions", "start")  # fmt: skip
    return replace(spec, **{name: getattr(base, name) for name in names})


def _form(run_spec: RunSpec, spec: RunSpec) -> dict[str, Any]:
    now, run = make_unmasker(spec), make_unmasker(run_spec)
    same = spec.unmasker == run_spec.unmasker
    knobs = [
        row | {"value": getattr(now, row["name"]),
               "run": getattr(run, row["name"]) if same else None}
        for row in describe_fields(type(now))
    ]  # fmt: skip
    (heat,) = (row for row in describe_fields(RunSpec) if row["name"] == "temperature")
    rules = [{"name": rule.name, "title": rule.title} for rule in unmaskers().values()]
    return {
        "rule": spec.unmasker, "run_rule": run_spec.unmasker, "rules": rules, "knobs": knobs,
        "temperature": heat | {"value": spec.temperature, "run": run_spec.temperature},
    }  # fmt: skip


def _decide(trace: Trace, step: int, run_spec: RunSpec, spec: RunSpec) -> WhatIf:
    arrays, run_rule, rule = trace.arrays(), make_unmasker(run_spec), make_unmasker(spec)
    own = (run_rule, run_spec.temperature) == (rule, spec.temperature)
    mine = arrays["commit_step"] == step
    did = np.zeros(len(arrays["canvas"]), np.uint8)
    did_ids = np.full(len(did), -1, np.int32)
    filled = np.isnan(arrays["commit_confidence"][mine])
    did[arrays["commit_position"][mine]] = np.where(filled, FILLED, COMMITTED)
    did_ids[arrays["commit_position"][mine]] = arrays["commit_id"][mine]
    problem = _problem(spec)
    refusal = f"No run has these settings. {problem}" if problem else ""
    if rule.guided:
        refusal = (
            f"{rule.title}: its guider decides what a step commits, and that needs a forward of "
            "the guider. Choose another rule to compare with, or branch to run it."
        )
    if trace.block_causal and not (arrays["candidate_step"] == step).any():
        refusal = (
            "This step proposes no token: it computes the keys and values of known tokens for the "
            "steps after it."
        )
    choice = None
    if not refusal:
        try:
            choice = _choose(trace, step, (run_spec, run_rule), (spec, rule), own)
        except UnknownAnswerError as error:
            refusal = str(error)
    found = _result(did, did_ids, choice, own)
    return replace(found, possible=not problem, refusal=refusal)


def _problem(spec: RunSpec) -> str:
    """Why no run can have the settings; empty if one can."""
    try:
        derive_plan(spec)
    except ValueError as error:
        return str(error)
    return ""


def _choose(
    trace: Trace,
    step: int,
    run: tuple[RunSpec, Unmasker],
    wanted: tuple[RunSpec, Unmasker],
    own: bool,
) -> _Choice:
    """Apply a rule to the candidates of a step; ValueError if the trace does not fit."""
    (run_spec, run_rule), (spec, rule) = run, wanted
    info, point = _model_info(trace), _point(trace, step, spec)
    view = _view(trace, step, spec, info, point)
    recorded = RecordedStep.of(trace, step)
    masked, block = view.masked_host, view.block
    if not masked[0, recorded.positions].all():
        raise ValueError("trace: a candidate of this step is no mask; export it again")
    undecided = masked & ~after_stop(spec, trace, step)
    end = np.array([block.stop if info.block_causal else view.run.length])
    rule.start(
        view.run, spec.steps // spec.blocks if rule.scheduled else None, _progress(point, view)
    )
    rows = rule.candidate_positions(undecided, block, end)
    recorded = recorded.only(rows[0])
    if not len(recorded.positions):
        raise ValueError("trace: this step has no candidates in its block; export it again")
    before = Sampling.of(run_rule, run_spec.temperature)
    after = Sampling.of(rule, spec.temperature)
    last = info.stop_ids if spec.eos_suppress == "confidence" else ()
    known = recorded.candidates(before, after, last, info.vocab_size)
    if run_rule.scheduled:
        run_rule.start(view.run, spec.steps // spec.blocks, _progress(point, view))
    if run_rule.logit_offsets(view) != rule.logit_offsets(view):
        raise UnknownAnswerError(OTHER_LOGITS)
    order, notes = _order(recorded, rule, rows, view, spec.seed, own)
    needs = recorded.positions.astype(np.int64)[None]
    real = np.ones(needs.shape, bool)
    view = replace(
        view, needs=torch.from_numpy(needs), real=torch.from_numpy(real), real_host=real,
        host_state=HostState(masked, needs, undecided), order=order,
        left=undecided[:, block].sum(1),
    )  # fmt: skip
    commit = rule.commit(known.candidates, view)
    committed = np.zeros(masked.shape, bool)
    committed[0, recorded.positions[commit.mask[0].numpy()]] = True
    ids, canvas = commit.ids[0].numpy(), view.canvas.numpy().copy()
    canvas[0, recorded.positions] = ids
    left = masked & ~committed
    filled = positions_to_fill(
        rule.end_of_text_rule(spec.eos), canvas, left, info.stop_ids, view.run.prompt_length,
        block.stop if info.block_causal else None,
    )  # fmt: skip
    if not own:
        notes += _caveats(run_spec, spec, step, len(recorded.positions), int(rows.sum()))
    values = known.candidates
    return _Choice(
        recorded, ids, values.confidence[0].numpy(), values.score[0].numpy(), known.chance,
        committed[0], filled[0], info.fill_id, known.unknown, tuple(notes),
    )  # fmt: skip


def _caveats(
    run_spec: RunSpec, spec: RunSpec, step: int, predicted: int, candidates: int
) -> Iterator[str]:
    """Why a branch with the settings `spec`, other than the run's, may commit other tokens."""
    if predicted < candidates:
        yield (
            f"The step computed predictions of {predicted} of the {candidates} masks "
            "that this rule may commit; it chooses among these."
        )
    if run_spec.cache != "none" or run_spec.cfg_scale:
        yield (
            "A branch computes its first step anew, without what the cache held. Where that "
            "changes a prediction, it commits other tokens than shown here."
        )
    if spec.temperature and step:
        yield (
            f"A branch draws its noise anew from the seed {spec.seed}, so that it may draw other "
            "tokens than shown here."
        )


def _result(
    did: np.ndarray,
    did_ids: np.ndarray,
    choice: _Choice | None,
    own: bool,
) -> WhatIf:
    """The arrays of all positions that were candidates, or that a step committed or filled."""
    length = len(did)
    would, ids = np.zeros(length, np.uint8), np.full(length, -1, np.int32)
    values, shown = np.full((length, 4), np.nan), did > 0
    if choice is not None:
        at = choice.step.positions
        would[choice.committed], would[choice.filled] = COMMITTED, FILLED
        ids[at], ids[choice.filled] = choice.ids, choice.fill_id
        values[at] = np.column_stack((choice.confidence, choice.score, choice.chance))
        shown = shown | (would > 0)
        shown[at] = True
    positions = np.flatnonzero(shown)
    lowest = np.finfo(np.float32).min  # float64 has lower scores
    part = np.maximum(values[positions], lowest).astype(np.float32)
    return WhatIf(
        positions.astype(np.int32), ids[positions], part[:, 0], part[:, 1], part[:, 2:],
        would[positions], did[positions], did_ids[positions], own,
        unknown=choice.unknown if choice else (), notes=choice.notes if choice else (),
    )  # fmt: skip


def _order(
    recorded: RecordedStep,
    rule: Unmasker,
    rows: np.ndarray,
    view: StepView,
    seed: int,
    own: bool,
) -> tuple[tuple[np.ndarray, ...] | None, list[str]]:
    """The order that the rule plans before a forward, if it plans any, and where it is from."""
    eligible = np.zeros_like(rows)
    eligible[0, recorded.positions] = True
    noise = [torch.Generator().manual_seed(seed)]
    drawn = rule.planned_order(rows, view.block, 0, noise, eligible)
    if drawn is None:
        return None, []
    if not own:
        return drawn, [f"The order is the one that a branch draws from the seed {seed}."]
    if not recorded.complete:
        raise OldTraceError
    return (recorded.planned(),), []


def _point(trace: Trace, step: int, spec: RunSpec) -> BranchPoint:
    """The state before a step, as that of a branch with the settings `spec`."""
    canvas = trace.arrays()["canvas"]
    prompt = canvas[: trace.prompt_length].tolist()
    start = replace(spec, start=BranchStart(PARENT, step))
    point = branch_point(start, {PARENT: trace}, prompt)
    assert point is not None, "the spec has a start"
    return point


def _progress(point: BranchPoint, view: StepView) -> dict[int, Any]:
    width = view.run.prompt_length
    recorded = {width + first: done for first, done in point.progress.items()}
    return {**shared_progress(view.run), **recorded}


def _view(trace: Trace, step: int, spec: RunSpec, info: ModelInfo, point: BranchPoint) -> StepView:
    """The view of a step, without the candidates. Raises ValueError if its block has no mask."""
    canvas = trace.canvas_at(step).astype(np.int64)[None]
    width = trace.prompt_length
    suffix = 0 if info.block_causal else canvas.shape[1] - width - spec.gen_length
    answer = canvas.shape[1] - width - suffix
    run = RunInfo(
        info, 1, width, answer, spec.block_length, spec.cfg_scale > 0, suffix_length=suffix
    )
    masked = np.zeros(canvas.shape, bool)
    masked[0, width : width + answer] = point.answer == REMASK
    index = int(trace.arrays()["block"][step])
    block = run.grid[index] if index < len(run.grid) else slice(0, 0)
    left = masked[:, block].sum(1)
    if not left.any():
        raise ValueError("trace: the block of this step has no mask; export it again")
    none = np.zeros((1, 0), np.int64)
    return StepView(
        run=run,
        step=step,
        block=block,
        block_index=index,
        block_step=0,
        canvas=torch.from_numpy(canvas),
        masked=torch.from_numpy(masked),
        needs=torch.from_numpy(none),
        real=torch.from_numpy(none > 0),
        left=left,
        real_host=none > 0,
        host_state=HostState(masked, none, masked),
    )


def _model_info(trace: Trace) -> ModelInfo:
    """The ids and sizes of the run's model; ValueError if the trace does not tell the ids.

    Rules read the ids alone. Sizes that the trace does not tell are 0.
    """
    held, ids = trace.meta["model"], ("mask_id", "vocab_size")
    stops, end = held.get("stop_ids"), held.get("eos_id", -1)
    fill = held.get("fill_id", end)  # files of earlier versions have none
    whole = all(type(one) is int for one in (*map(held.get, ids), end, fill))
    if not whole or not isinstance(stops, list) or not all(type(one) is int for one in stops):
        raise ValueError("trace: meta.model is incomplete; export it again")
    told = {
        f.name: held.get(f.name, 0 if f.default is dataclasses.MISSING else f.default)
        for f in dataclasses.fields(ModelInfo)
    }
    lists = {"stop_ids": tuple(stops), "block_sizes": tuple(told["block_sizes"])}
    lists["suppressed_ids"] = ()
    return ModelInfo(**told | lists | {"eos_id": end, "fill_id": fill, "experts": None})
