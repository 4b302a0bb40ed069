"""Runs of block diffusion models from their files: plan, recording, what-if, branches, lesson."""

from dataclasses import replace

import numpy as np
import pytest

from engine.config.branch_start import BranchStart
from engine.config.spec import RunSpec
from engine.core.drift_codes import NOT_EVALUATED
from engine.core.events import QUANTITIES
from engine.estimate.estimate import Assumptions, Target, simulate
from engine.generate.loop import Denoiser, denoise
from engine.serve.loaded_model import make_job
from engine.serve.model_pool import ModelPool
from engine.serve.session import Session
from engine.trace.trace import Trace
from inspector.lessons.lesson_checks import commit_call
from inspector.views.queries import layer_histogram, query_facts, reuse_by_layer
from inspector.views.schedule import running
from tests.support.micro import write_checkpoint
from tests.support.traces import trace_of

TEXT = "Nuts cost 9 dollars each. Lily buys 5 nuts."
SDAR = {"model": "sdar", "block_length": 4, "unmasker": "dynamic"}
FAST = {"model": "fast_dllm_v2", "block_length": 32, "unmasker": "fast_dllm_v2"}


@pytest.fixture(scope="module")
def session(tmp_path_factory):
    folder = tmp_path_factory.mktemp("models")
    kinds = ("sdar", "fast_dllm_v2")
    return Session({kind: write_checkpoint(folder / kind, kind=kind) for kind in kinds})


def spec_of(**changes):
    base = {"prompt": TEXT, "gen_length": 32, "steps": 32, "record": "probe", "probe_steps": 4}
    return RunSpec(**(base | changes))


def recorded(session, spec, **parents):
    trace = trace_of(session.run(spec, parents=parents))
    assert trace.meta["reason"] == "done", trace.meta["message"]
    return Trace.from_bytes(trace.to_bytes())


def tail(trace, step=0):
    arrays = trace.arrays()
    later = arrays["commit_step"] >= step
    return list(zip(arrays["commit_position"][later], arrays["commit_id"][later], strict=True))


@pytest.mark.parametrize("model", [SDAR, FAST], ids=["sdar", "fast_dllm_v2"])
def test_a_recorded_run_is_exact_and_its_plan_and_rules_are_followed(session, model):
    spec = spec_of(**model, cache="frozen")
    plan, trace = session.plan(spec), recorded(session, spec)
    arrays = trace.arrays()
    assert plan["min_forwards"] <= trace.steps <= plan["max_forwards"]
    assert len(arrays["canvas"]) % spec.block_length == 0
    errors = arrays["probe_error"]
    assert errors[errors < 255].max() <= 1
    assert np.array_equal(arrays["planned"], trace.recomputed_kinds())
    assert len(arrays["similarity_step"]) == trace.steps
    for step in range(trace.steps):
        found = session.what_if(trace, step, {})
        proposed = (arrays["candidate_step"] == step).any()
        assert bool(found["refusal"]) == (not proposed)
        if proposed:
            assert np.array_equal(found["would"] > 0, found["did"] > 0)
    shorter = session.plan(replace(spec, knobs={"frozen.fuse": True}, unmasker="quota"))
    assert shorter["max_forwards"] < session.plan(replace(spec, unmasker="quota"))["max_forwards"]


def test_rows_beyond_the_block_are_neither_reused_nor_those_of_a_run_without_a_cache(session):
    plain, cached = (
        recorded(session, spec_of(**SDAR, cache=cache, record="layers"))
        for cache in ("none", "frozen")
    )
    steps, length = plain.steps, len(plain.arrays()["canvas"])
    metrics = plain.meta["metrics"]
    assert metrics["rows"] == metrics["rows_plain"] == plain.rows_in_sight().sum()
    assert metrics["rows"] < 0.8 * steps * length
    assert not reuse_by_layer(plain).any()
    assert cached.meta["metrics"]["rows_plain"] == metrics["rows_plain"]
    calls = cached.commit_calls
    assert calls[0]
    assert calls.sum() == cached.steps - plain.steps
    assert not plain.commit_calls.any()
    assert cached.rows_in_sight()[~calls].tolist() == plain.rows_in_sight().tolist()
    done = cached.recompute_map()[~calls].sum((0, -1))
    assert reuse_by_layer(cached) == pytest.approx(1 - done / plain.rows_in_sight().sum())


def test_the_work_of_commit_calls_is_a_part_of_the_steps_that_plain_decoding_takes(session):
    plain, cached = (
        recorded(session, spec_of(**SDAR, cache=cache, record="steps"))
        for cache in ("none", "frozen")
    )
    for trace in (plain, cached):
        shares = trace.arrays()["recomputed"]
        share = trace.meta["metrics"]["recomputed"]
        assert share == pytest.approx(shares.sum() / plain.steps)
        assert running(shares, trace.commit_calls)[-1] == pytest.approx(100 * share)


def test_a_commit_call_attends_to_no_row_of_the_block_that_follows(session):
    trace = recorded(session, spec_of(**SDAR, cache="frozen", record="layers"))
    calls, done = trace.commit_calls, trace.recompute_map()
    last = [int(np.flatnonzero(rows.any((0, 1))).max()) for rows in done[calls]]
    assert (trace.rows_in_sight()[calls] - 1).tolist() == last
    assert last == sorted(set(last))


def test_a_run_stopped_right_after_a_commit_call_ends_with_one(session):
    events = list(session.run(spec_of(**SDAR, cache="frozen", record="layers")))
    whole = Trace()
    for event in events:
        whole.append(event)
    calls, sight = whole.commit_calls, whole.rows_in_sight()
    for call in np.flatnonzero(calls)[[0, -1]]:
        for steps in (call + 1, call + 2):
            stopped, left = Trace(), iter(events)
            while stopped.steps < steps:
                stopped.append(next(left))
            assert stopped.commit_calls.tolist() == calls[:steps].tolist()
            assert stopped.rows_in_sight().tolist() == sight[:steps].tolist()


def test_the_histogram_of_query_drifts_counts_no_row_of_a_commit_call(session):
    trace = recorded(session, spec_of(**SDAR, cache="frozen", record="layers"))
    calls = trace.commit_calls
    codes = trace.cells("drift")[:, 0, QUANTITIES.index("q0")] != NOT_EVALUATED
    assert codes[calls].any()
    assert layer_histogram(trace, 0)[0].sum() == codes[~calls].sum()
    assert query_facts(trace)["calls"] == calls.sum()


def test_an_approximate_cache_has_an_error_and_the_lesson_is_checked(session):
    exact = recorded(session, spec_of(**FAST, cache="frozen"))
    knobs = {"sub_block.size": 8, "fast_dllm_v2.threshold": 0.2}
    partly = recorded(session, spec_of(**FAST, cache="sub_block", knobs=knobs, probe_steps=16))
    traces = {"a": exact, "b": partly}
    answers = [step for step in range(1, exact.steps + 1) if commit_call(traces, str(step), {})[0]]
    assert len(answers) == 1
    rows = exact.region_rows(np.arange(1))[0, 1]
    assert not exact.recompute_map()[answers[0] :, :, :, rows].any()
    assert "0.0000 in lane A" in commit_call(traces, str(answers[0]), {})[1]


@pytest.mark.parametrize("model", [SDAR, FAST], ids=["sdar", "fast_dllm_v2"])
def test_a_branch_goes_on_from_any_step_and_an_edit_of_a_finished_block_counts(session, model):
    spec = spec_of(**model, cache="frozen", record="steps")
    parent = recorded(session, spec)
    arrays = parent.arrays()
    for step in (1, parent.steps // 2):
        start = replace(spec, start=BranchStart("p", step))
        assert [p for p, _ in tail(recorded(session, start, p=parent))] == [
            p for p, _ in tail(parent, step)
        ]
    last = int(arrays["block"].max())
    if last > 1:
        late = int(np.flatnonzero(arrays["block"] == last)[0])
        width = int(arrays["prompt_mask"].sum())
        place = int(arrays["commit_position"][0]) - width
        other = (int(arrays["commit_id"][0]) + 1) % 700
        edited = recorded(
            session, replace(spec, start=BranchStart("p", late, ((place, other),))), p=parent
        )
        plain = recorded(
            session, replace(spec, start=BranchStart("p", late), cache="none"), p=parent
        )
        again = recorded(
            session, replace(spec, start=BranchStart("p", late, ((place, other),)), cache="none"),
            p=parent,
        )  # fmt: skip
        assert tail(edited) == tail(again)
        assert [p for p, _ in tail(plain)] == [p for p, _ in tail(parent, late)]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"cache": "dual"}, "^cache: Fast-dLLM dual cache .*choose frozen"),
        ({"block_length": 16, "steps": 32}, "^block_length: 16 is not .*set it to 32"),
        ({"cfg_scale": 1.0}, "^cfg_scale: "),
    ],
)
def test_the_plan_refuses_by_name_what_a_block_model_cannot_do(session, changes, message):
    with pytest.raises(ValueError, match=message):
        session.plan(spec_of(**FAST | changes))


def test_an_estimate_takes_the_steps_of_a_run(session):
    spec = spec_of(**SDAR | {"unmasker": "quota"}, cache="frozen", record="off")
    events = [e for e in session.run(spec) if hasattr(e, "flops")]
    tokens = session.plan(spec)["prompt_tokens"]
    target = Target("sdar", session.model_info("sdar"), tokens)
    found = simulate(spec, target, Assumptions())
    assert [int(e.flops.sum()) for e in found.events] == [int(e.flops.sum()) for e in events]


@pytest.mark.parametrize("block_length", [8, 16])
def test_a_run_attends_within_blocks_of_its_own_length(tmp_path, block_length):
    folder = write_checkpoint(tmp_path / "sdar", kind="sdar")
    spec = RunSpec(model="sdar", gen_length=16, block_length=block_length, steps=16)
    model = ModelPool({"sdar": folder}).load_to_run(spec)
    job = make_job(model, spec, [list(range(3, 11))])
    assert job.adapter.info.block_size == block_length
    right, other = (
        replace(job, adapter=model.adapter.with_block_size(size)) for size in (block_length, 4)
    )
    answers = []
    for one in (job, right, other):
        state = Denoiser(one)
        answers.append([event.confidence.tolist() for event in denoise(state)])
    assert answers[0] == answers[1] != answers[2]
