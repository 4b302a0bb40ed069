"""Guided runs of a session: embedded models, traces, plans and refused settings."""

import pickle
import shutil
from dataclasses import replace

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from engine.batch.journal import run_key
from engine.catalog import derive_plan
from engine.config.branch_start import BranchStart
from engine.config.knobs import text_knobs
from engine.config.spec import RunSpec
from engine.core.events import GUIDED, PARTS, RunStarted, StepEvent
from engine.core.files import ASSETS
from engine.trace.trace import Trace
from tests.support.micro import make_spec
from tests.support.traces import trace_of

PROMPT = "Mia has 8 cards. Leo has 5 more than Mia. How many cards do they have together?"


def guided_spec(**changes):
    knobs = changes.pop("knobs", {})
    size = {"gen_length": 48, "block_length": 16, "steps": 48, "prompt": PROMPT}
    return RunSpec(**({"unmasker": "guided", "knobs": knobs} | size | changes))


def events_of(session, spec, parents=None):
    events = list(session.run(spec, parents=parents))
    assert events[-1].reason == "done", events[-1].message
    return events


@pytest.fixture(scope="module")
def recorded(shipped):
    return events_of(shipped, guided_spec(record="steps", cache="freecache"))


@pytest.mark.parametrize("cache", ["frozen", "sub_block"])
def test_steps_that_draft_nothing_have_a_row_too_and_the_trace_is_read_again(shipped, cache):
    spec = guided_spec(model="tiny-block", cache=cache, gen_length=32)
    whole = trace_of(events_of(shipped, spec))
    start = BranchStart("whole", whole.steps - 1, ())
    branch = trace_of(events_of(shipped, replace(spec, start=start), {"whole": whole}))
    for trace in (whole, branch):
        arrays = Trace.from_bytes(trace.to_bytes()).arrays()
        counts, own = arrays["guided_count"], np.isfinite(arrays["commit_confidence"])
        assert len(counts) == len(arrays["guided_nll"]) == trace.steps
        drafting = np.flatnonzero(counts[:, GUIDED.index("drafted")])
        assert drafting.tolist() == np.unique(arrays["commit_step"][own]).tolist()
        assert len(drafting) < trace.steps
        accepted = counts[drafting, GUIDED.index("accepted")]
        assert trace.meta["metrics"]["accepted"] == pytest.approx(accepted.mean())


def test_a_guided_run_answers_correctly_in_few_steps(shipped):
    problem = shipped.problem(3, family="short_problems")
    plain = events_of(shipped, guided_spec(unmasker="quota", prompt=problem["prompt"]))[-1]
    guided = events_of(shipped, guided_spec(prompt=problem["prompt"]))[-1]
    answers = {run.texts[0].split()[-1] for run in (plain, guided)}
    assert answers == {f"{problem['answer']}."}
    assert guided.metrics["nfe"] * 3 < plain.metrics["nfe"] == 48
    assert guided.metrics["guider_ms"] < guided.metrics["total_ms"]
    assert guided.metrics["gflops_guider"] > 0
    assert "guider_ms" not in plain.metrics
    assert plain.metrics["gflops_guider"] == 0


def test_the_first_event_describes_the_guider(recorded):
    started = next(event for event in recorded if isinstance(event, RunStarted))
    assert dict(started.guider).items() >= {
        "name": "tiny-qwen2", "shared": True, "prompt": "own_template", "layers": 8,
        "vocab_size": 1024,
    }.items()  # fmt: skip


def test_metrics_include_the_guider(recorded, shipped):
    metrics = recorded[-1].metrics
    steps = [event for event in recorded if isinstance(event, StepEvent)]
    without = events_of(shipped, guided_spec(unmasker="threshold", cache="freecache"))[-1].metrics
    held = metrics["guider_cache_bytes"]
    assert metrics["cache_bytes"] == without["cache_bytes"] + held
    longest = 48 + 40  # an answer and a little more than its prompt
    assert 0 < held <= longest * 2 * 8 * 128 * 4
    assert metrics["guider_weight_bytes"] == 1_873_024 * 4
    assert metrics["guider_ms"] == pytest.approx(sum(e.guided.ms for e in steps))
    assert metrics["gflops_guider"] == pytest.approx(sum(e.guided.flops for e in steps) / 1e9)
    assert metrics["guider_tokens"] == sum(e.guided.fed + e.guided.prefilled for e in steps)
    assert metrics["fallback_rate"] == np.mean([e.guided.fell_back for e in steps])
    assert metrics["accepted"] == np.mean([e.guided.accepted for e in steps])
    assert metrics["gflops"] > metrics["gflops_guider"]


def test_a_steps_numbers_match_its_verdicts(recorded):
    for event in recorded:
        if not isinstance(event, StepEvent):
            continue
        step, verdicts = event.guided, event.guided.verdicts
        assert len(verdicts.positions) == step.drafted
        assert step.judged == len(verdicts.guider_ids)
        ranks = [int((verdicts.guider_rank < n).sum()) for n in (1, 2, 5)]
        assert [step.top1, step.top2, step.top5] == ranks
        k = step.accepted
        assert verdicts.ok[:k].all()
        assert k == step.drafted or not verdicts.ok[k]
        assert event.positions[: max(k, 1)].tolist() == verdicts.positions[: max(k, 1)].tolist()
        assert event.ids[: max(k, 1)].tolist() == verdicts.ids[: max(k, 1)].tolist()
        assert np.allclose(event.confidence[: max(k, 1)], verdicts.p_f[: max(k, 1)])
        assert step.fell_back == (k == 0)
        assert step.nll == pytest.approx(-np.log(verdicts.guider_p.astype(float)).mean(), rel=1e-4)
        assert np.array_equal(verdicts.p_g, verdicts.guider_p)
        assert np.array_equal(verdicts.ends, verdicts.guider_ends)
        assert (verdicts.guider_p <= verdicts.top_p).all()
        assert ((verdicts.guider_rank == 0) == (verdicts.guider_ids == verdicts.top_ids)).all()
        assert np.isfinite(verdicts.kl).all()


def test_recorded_ends_are_the_byte_lengths_of_the_draft(recorded):
    pieces = {}
    for event in recorded:
        if isinstance(event, RunStarted | StepEvent):
            pieces |= event.pieces
        if isinstance(event, StepEvent):
            verdicts = event.guided.verdicts
            sizes = [len(pieces[i]) if i not in (1, 5) else 0 for i in verdicts.ids.tolist()]
            assert np.cumsum(sizes).tolist() == verdicts.ends.tolist()
            pieces |= event.pieces


def test_a_saved_trace_keeps_the_guiders_arrays(recorded, tmp_path):
    trace = trace_of(recorded)
    steps = [event for event in recorded if isinstance(event, StepEvent)]
    arrays = trace.arrays()
    assert arrays["guided_count"].tolist() == [
        [int(getattr(event.guided, name)) for name in GUIDED] for event in steps
    ]
    assert arrays["draft_id"].tolist() == [i for e in steps for i in e.guided.verdicts.ids]
    assert set(np.append(arrays["guider_id"], arrays["guider_top"]).tolist()) == set(
        trace.guider_pieces
    )
    assert arrays["flops"][:, PARTS.index("guider")].tolist() == [e.guided.flops for e in steps]
    for name in ("t.npz", "t.json"):
        trace.save(tmp_path / name)
        again = Trace.load(tmp_path / name)
        assert again.meta["guider"] == trace.meta["guider"]
        assert again.guider_pieces == trace.guider_pieces
        for field, array in again.arrays().items():
            assert np.array_equal(array, arrays[field], equal_nan=array.dtype.kind == "f"), field


def test_without_a_recording_a_trace_keeps_only_the_counts(shipped):
    events = events_of(shipped, guided_spec())
    arrays = trace_of(events).arrays()
    assert len(arrays["guided_count"]) == trace_of(events).steps
    assert len(arrays["draft_id"]) == len(arrays["guider_piece_id"]) == 0
    assert pickle.loads(pickle.dumps(events[-2])).guided == events[-2].guided


@pytest.mark.parametrize(
    "changes",
    [{"cfg_scale": 0.5}, {"record": "layers"}, {"record": "probe", "cache": "freecache"},
     {"cache": "dual"}, {"cache": "dllm_cache"}, {"temperature": 0.8}, {"dtype": "bfloat16"},
     {"cache": "freecache", "knobs": {"freecache.window": 32}}, {"cache": "dkv_cache"},
     {"knobs": {"guided.rule": "rel_dlm", "guided.multi_chunk": False, "guided.block": 8}},
     {"knobs": {"guided.fallback": "ar"}}, {"fixed": ((3, 40), (20, 41))}],
)  # fmt: skip
def test_guided_runs_with_other_settings(shipped, changes):
    events = events_of(shipped, guided_spec(**changes))
    steps = [event for event in events if isinstance(event, StepEvent)]
    assert all(event.guided is not None for event in steps)
    assert steps[-1].masks_left == 0
    Trace.from_bytes(trace_of(events).to_bytes())


def test_a_branch_can_be_guided(shipped, recorded):
    parent = trace_of(recorded)
    spec = guided_spec(record="steps", cache="freecache")
    spec = replace(spec, start=BranchStart("p", 2, ((0, -1),)))
    branch = trace_of(events_of(shipped, spec, {"p": parent}))
    known = parent.canvas_at(2)
    width = len(known) - 48
    assert branch.arrays()["canvas"][width] != known[width]
    assert (branch.canvas_at(branch.steps)[width:] != 2).all()
    assert branch.arrays()["commit_position"][0] == width


@pytest.mark.parametrize(
    ("changes", "message"),
    [({"guided.guider": "nobody"}, r"^guided\.guider: 'nobody' is unknown; .*tiny-qwen2"),
     ({"guided.guider": str(ASSETS / "models" / "tiny-llada")}, r"^guided\.guider: "),
     ({"guided.prompt": "shared"}, r"^guided\.prompt: shared .* own_template or auto"),
     ({"guided.rule": "best"}, r"^guided\.rule: "), ({"guided.k": 0}, r"^guided\.k: "),
     ({"guided.tau": 1.5}, r"^guided\.tau: "), ({"guided.block": 0}, r"^guided\.block: ")],
)  # fmt: skip
def test_invalid_settings_are_refused_with_the_name_of_the_knob(shipped, changes, message):
    with pytest.raises(ValueError, match=message):
        shipped.plan(guided_spec(knobs=changes))


def test_a_numeric_guider_name_in_a_link_stays_text(shipped):
    knobs = text_knobs(shipped.catalog()["unmaskers"])
    link = "prompt=a&unmasker=guided&guided.guider=2024&guided.k=3"
    spec = RunSpec.from_query(link, knobs)
    assert spec.knobs == {"guided.guider": "2024", "guided.k": 3}
    with pytest.raises(ValueError, match=r"^guided\.guider: '2024' is unknown"):
        shipped.plan(spec)


def test_a_plan_counts_the_guiders_memory_and_the_fewest_steps(shipped):
    guided, plain = shipped.plan(guided_spec()), shipped.plan(guided_spec(unmasker="threshold"))
    assert guided["memory_bytes"] > plain["memory_bytes"]
    assert (guided["min_forwards"], guided["max_forwards"]) == (1, 48)
    assert plain["min_forwards"] == 3


def test_caches_that_may_omit_the_first_mask_are_refused():
    spec = make_spec(unmasker="guided", cache="d2_cache", knobs={"d2_cache.current_k": 3})
    with pytest.raises(ValueError, match=r"d2_cache\.current_k: guided .* least valid value is 4"):
        derive_plan(spec)
    derive_plan(make_spec(unmasker="guided", cache="d2_cache", knobs={"d2_cache.current_k": 4}))


def test_excluded_ends_that_could_be_committed_are_refused():
    with pytest.raises(ValueError, match=r"^eos_suppress: "):
        derive_plan(make_spec(unmasker="guided", eos_suppress="confidence"))
    derive_plan(make_spec(unmasker="guided", eos_suppress="logits"))
    knobs = {"guided.fallback": "ar"}
    with pytest.raises(ValueError, match=r"^guided\.fallback: ar commits the guider's token"):
        derive_plan(make_spec(unmasker="guided", eos_suppress="logits", knobs=knobs))


def test_a_sampled_run_is_determined_by_its_seed(shipped):
    spec = guided_spec(temperature=0.7, seed=5)
    first, again = (trace_of(events_of(shipped, spec)).arrays()["commit_id"] for _ in range(2))
    assert np.array_equal(first, again)
    other = trace_of(events_of(shipped, replace(spec, seed=6))).arrays()["commit_id"]
    assert not np.array_equal(first, other)
    assert torch.is_inference_mode_enabled() is False


def test_other_weights_of_a_guider_make_another_run(shipped, tmp_path):
    folder = tmp_path / "guider"
    shutil.copytree(ASSETS / "models" / "tiny-qwen2", folder)
    spec = guided_spec(knobs={"guided.guider": str(folder)})
    before = shipped.environment(spec)
    weights = load_file(folder / "model.safetensors")
    weights["model.norm.weight"] += 1
    save_file(weights, folder / "model.safetensors", {"format": "pt"})
    after = shipped.environment(spec)
    assert before["checkpoint"] == after["checkpoint"]
    assert before["guider"] != after["guider"]
    assert run_key(spec, None, before) != run_key(spec, None, after)
    assert "guider" not in shipped.environment(guided_spec(unmasker="quota"))
