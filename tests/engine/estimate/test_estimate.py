"""Estimates: published settings, errors that name a field, rates, and recorded runs."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from engine.config.spec import RunSpec
from engine.estimate.assumptions import Assumptions, complete
from engine.estimate.devices import (
    EFFICIENCY,
    FEW_ROWS,
    GPUS,
    MANY_ROWS,
    DeviceRates,
    step_seconds,
    total_bytes,
)
from engine.estimate.estimate import Target, estimate, known_model, simulate
from engine.estimate.published import nearest_figure
from engine.estimate.recorded import assumptions_of, recorded_info, share_of
from engine.estimate.work import WorkCounter
from engine.trace.trace import Trace
from tests.support.browser import ROOT
from tests.support.traces import trace_of

LLADA = "GSAI-ML/LLaDA-8B-Instruct"
MOE = "inclusionAI/LLaDA-MoE-7B-A1B-Instruct"
LENGTH = "length of the answer"
SPEC = RunSpec(gen_length=64, block_length=32, steps=64, dtype="bfloat16")
SHORT = replace(SPEC, gen_length=32, block_length=16, steps=32)


def of(device="h100", model=LLADA, tokens=64, given=None, **changes):
    target = Target(model, known_model(model), tokens)
    return estimate(replace(SPEC, **changes), target, device, given)


def test_plain_decoding_of_llada_8b_has_the_known_flops():
    """C = 15.90 TFLOPs a step with the head on all 1024 rows, less the rows that are not read."""
    spec = replace(SPEC, gen_length=256, block_length=256, steps=256)
    target = Target(LLADA, known_model(LLADA), 768)
    found = simulate(spec, target, Assumptions())
    info = target.info
    last = 2 * 4096 * (2 * 4096) + 4 * 1024 * 4096 + 6 * 4096 * 12288  # q, out, scores, ffn
    head = 2 * 4096 * info.vocab_size
    first = int(found.events[0].flops.sum()) + (1024 - 256) * (last + head)
    assert first / 1e12 == pytest.approx(15.90, abs=0.0075)


def test_a_cache_saves_work_and_memory_bounds_it():
    plain, dual = of(), of(cache="dual")
    assert dual["flops"] < plain["flops"] / 1.5
    assert dual["time"]["run_seconds"] < plain["time"]["run_seconds"]
    assert dual["time"]["memory_bound_steps"] > 0.9
    assert plain["memory"]["cache_bytes"] == 0
    assert dual["memory"]["cache_bytes"] == 2 * 32 * 128 * 4096 * 2


def test_fixed_tokens_of_another_vocabulary_count_as_given():
    """The ids are of the model of the spec: 126336 is LLaDA's mask."""
    fixed = of(fixed=((0, 126_336), (3, 10**7)), unmasker="threshold")
    assert fixed["flops"] < of(unmasker="threshold")["flops"]


@pytest.mark.parametrize(
    ("fixed", "said"),
    [((), "all 64 positions of the answer are decoded"),
     (((0, 5), (3, 5)), "all 62 positions that are not given are decoded")],
)  # fmt: skip
def test_an_estimate_says_how_many_positions_are_decoded(fixed, said):
    assert any(said in text for text in of(fixed=fixed)["assumed"])


def test_the_memory_of_this_machine_is_what_is_free(monkeypatch):
    here = replace(GPUS["rtx3090"], title="this machine", measured=True)
    monkeypatch.setattr("engine.estimate.estimate.known_device", lambda *_: here)
    assert "and this machine has 24.0 GB free" in of(dtype="float32")["memory"]["problem"]


def test_weights_that_do_not_fit_are_said():
    assert of("h100")["memory"]["problem"] == ""
    assert "RTX 3090 has 24.0 GB" in of("rtx3090", dtype="float32")["memory"]["problem"]


@pytest.mark.parametrize(("rows", "read"), [(1, 8), (3, 24), (8, 64), (500, 64)])
def test_a_call_reads_the_experts_that_its_rows_can_choose(rows, read):
    info = known_model(MOE)
    work = WorkCounter.of(info, torch.bfloat16)
    work.feed_forward(0, rows)
    expert, router = 3 * 2048 * 1024, 2048 * 64
    assert work.weight_bytes == 2 * (router + read * expert)
    assert int(work.parts().sum()) == 2 * rows * (router + 8 * expert)
    assert info.experts.used(rows) == read


def test_the_estimate_of_a_model_with_experts_tells_stored_and_active_weights():
    found = of(model=MOE, cache="dual")
    assert found["memory"]["weights_bytes"] == 2 * 7_356_880_896
    assert found["memory"]["active_weights_bytes"] == 2 * 1_397_823_488
    assert any("read min(64, 8 n) of them" in text for text in found["assumed"])
    dense = of()["memory"]
    assert dense["active_weights_bytes"] == dense["weights_bytes"]


@pytest.mark.parametrize(
    ("changes", "words"),
    [({"unmasker": "guided"}, "guider itself"), ({"images": ("8x8-" + 32 * "0",)}, "vision tower")],
)
def test_work_outside_the_model_is_said_to_be_left_out(changes, words):
    found = of(**changes)
    assert any(words in text for text in found["assumed"])
    assert not found["exact"]
    assert of()["exact"]


def test_a_window_of_few_rows_reads_fewer_experts():
    info = known_model("llada_moe:layers=2,d=32,heads=4,experts=32,active=2,ffn=12")
    target = Target("x", info, 64)
    spec = replace(SPEC, cache="dual", block_length=4, steps=64)
    work = simulate(spec, target, Assumptions()).work
    # Experts of the first layer (all rows, then 4), and of the last (4 rows with logits, then 3).
    first, second = 32 + 2 * 4, 2 * 4 + 2 * 3
    expert = 3 * 32 * 12 * 2
    assert work[0].weight_bytes - work[1].weight_bytes == (first - second) * expert


def test_the_time_of_a_step_is_the_longer_of_both_and_the_overhead():
    info = known_model(LLADA)
    work = WorkCounter.of(info, torch.bfloat16)
    work.feed_forward(0, 10)
    work.attend(0, 10, 20)
    rates = DeviceRates("x", "x", 1e9, 2e9, 1e30, 1.0, 5.0, 0, "")
    parts = work.parts()
    busy = (parts.sum() - parts[1]) / 1e9 + parts[1] / 2e9
    assert step_seconds(work, 2, rates) == (pytest.approx(busy + 2 * 32 + 5), "compute")
    slow = replace(rates, bandwidth=1.0)
    assert step_seconds(work, 1, slow) == (pytest.approx(total_bytes(work) + 32 + 5), "memory")


def test_a_step_of_few_rows_has_the_rate_of_few_rows():
    rates = DeviceRates("x", "x", 8e9, 2e9, 1e30, 0.0, 0.0, 0, "", few_flops=2e9)
    assert rates.product_rate(FEW_ROWS) == rates.product_rate(1) == pytest.approx(2e9)
    assert rates.product_rate(MANY_ROWS) == rates.product_rate(4 * MANY_ROWS) == pytest.approx(8e9)
    assert rates.product_rate((FEW_ROWS * MANY_ROWS) ** 0.5) == pytest.approx(4e9)
    assert replace(rates, few_flops=0.0).product_rate(1) == 8e9


def test_a_device_with_twice_the_rates_is_faster():
    a100, h100 = of("a100"), of("h100")
    assert GPUS["h100"].flops > 3 * GPUS["a100"].flops
    assert h100["time"]["run_seconds"] < a100["time"]["run_seconds"]
    assert "published" in h100["device"]["source"]
    assert not h100["device"]["measured"]


def test_a_gpu_multiplies_float32_at_its_published_rate_without_tensor_cores():
    rates = GPUS["h100"].at(torch.float32)
    assert rates.flops == pytest.approx(67e12 * EFFICIENCY)
    assert GPUS["h100"].at(torch.bfloat16) is GPUS["h100"]
    single, half = (of(dtype=dtype)["time"]["step_ms"] for dtype in ("float32", "bfloat16"))
    assert single > 5 * half


def test_nothing_is_taken_off_a_published_bandwidth_nor_added_for_launches():
    assert GPUS["h100"].bandwidth == 3350e9
    assert {gpu.layer_seconds + gpu.step_seconds for gpu in GPUS.values()} == {0.0}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"device": "h900"}, "device: no rates of 'h900'"),
        ({"dtype": "float64"}, "dtype: the rate of .* in torch.float64 is not known"),
        ({"model": "LLaDA-80B"}, "model: the sizes of 'LLaDA-80B' are not known"),
        ({"tokens": 0}, "prompt_tokens: 0 is not a whole number"),
        ({"tokens": 5000}, "prompt_tokens: 5000 tokens .* exceed the context of 4096"),
        ({"cache": "spa_cache", "knobs": {"spa_cache.rank": 8000}}, "spa_cache.rank: 8000 exceeds"),
        ({"cache": "spa_cache", "knobs": {"spa_cache.budget": "fitted"}}, "spa_cache.budget"),
        ({"steps": 63}, "steps: 63 is not a multiple"),
    ],
)
def test_what_is_impossible_is_named(changes, message):
    with pytest.raises(ValueError, match=message):
        of(**changes)


@pytest.mark.parametrize("given", [{"share": 1.5}, {"tokens_per_forward": 0.5}, {"share": "x"}])
def test_assumptions_have_bounds(given):
    with pytest.raises(ValueError, match=next(iter(given))):
        Assumptions(**given)


def test_assumptions_are_said_where_data_decides_and_only_there():
    assert of(cache="dllm_cache")["exact"]
    found = of(cache="d2_cache", unmasker="threshold", given=Assumptions(3.0, 0.05))
    assert not found["exact"]
    assert found["steps"] == pytest.approx(64 / 3, abs=1)
    words = " ".join(found["assumed"])
    assert "3 a forward" in words
    assert "5.0 %" in words


@pytest.mark.parametrize(
    ("knobs", "assumed"),
    [
        ({"freecache.block": SPEC.block_length}, False),
        ({"freecache.block": 8}, True),
        ({"freecache.window": 40}, True),
    ],
)
def test_the_order_of_commits_is_assumed_where_rows_depend_on_it(knobs, assumed):
    found = of(cache="freecache", knobs=knobs)
    assert any("Assumed: from left to right" in line for line in found["assumed"]) == assumed
    assert found["exact"] != assumed


@pytest.mark.parametrize(("order", "exact"), [("origin", False), ("entropy", True)])
def test_counts_that_chance_decides_are_not_called_exact(order, exact):
    found = of(unmasker="dream", knobs={"dream.alg": order})
    assert found["exact"] == exact
    assert any(line.startswith("Chance decides") for line in found["assumed"]) != exact


@pytest.fixture(scope="module")
def recorded():
    return Trace.load(ROOT / "assets/examples/b.npz")


def test_a_recorded_run_gives_the_tokens_a_forward(recorded):
    spec = replace(SPEC, cache="dual", unmasker="threshold")
    found = assumptions_of(recorded, spec)
    committed = len(recorded.arrays()["commit_position"])
    assert found.tokens_per_forward == pytest.approx(committed / recorded.steps)
    assert "recorded run" in found.source
    with pytest.raises(ValueError, match="recorded: the run has unmasker threshold"):
        assumptions_of(recorded, replace(spec, unmasker="factor"))


@pytest.mark.parametrize(
    ("part", "changes", "said"),
    [
        ("model", {"layers": 10**6}, "recorded: the model has 1000000 layers; at most 1024"),
        ("model", {"layers": 1_000}, "recorded: with 1000 layers the run is too long to search"),
        ("model", {"mask_id": "x"}, "recorded: the model's mask and stop ids"),
        ("model", {"mask_id": 10**6}, "recorded: the model's mask and stop ids"),
        ("model", {"stop_ids": [[1]]}, "recorded: the model's mask and stop ids"),
        ("model", {"stop_ids": list(range(10_000))}, "recorded: the model's mask and stop ids"),
        ("model", {"logit_shift": "x"}, "recorded: the model's logit_shift"),
        ("spec", {"steps": 1}, "steps: 1 "),
    ],
)
def test_a_recorded_run_of_a_hostile_file_is_refused(part, changes, said):
    trace = Trace.load(ROOT / "assets/examples/methods/dare_o.npz")
    spec = RunSpec.from_dict(trace.meta["spec"])
    trace.meta[part] = trace.meta[part] | changes
    with pytest.raises(ValueError, match=f"^{said}"):
        assumptions_of(trace, spec)


def test_the_text_ids_of_a_recorded_model_do_not_matter():
    trace = Trace.load(ROOT / "assets/examples/methods/dare_o.npz")
    trace.meta["model"] = trace.meta["model"] | {"text_size": "x"}
    assert recorded_info(trace).text_size == 0


@pytest.mark.parametrize("cache", ["dare_kv", "d2_cache"])
def test_the_share_of_a_run_is_found_again(cache):
    model = "llada:layers=3,d=64,heads=2,ffn=64,vocab=1024"
    spec, target = replace(SHORT, cache=cache), Target(model, known_model(model), 40)
    run = simulate(spec, target, complete(spec, Assumptions(share=0.3), target.info)[0])
    assert share_of(spec, target, 1.0, run.recomputed) == pytest.approx(0.3, abs=0.03)
    assert share_of(spec, target, 1.0, 0.01) == 0.0
    assert share_of(spec, target, 1.0, 1.0) == pytest.approx(1.0, abs=0.2)
    assert share_of(replace(spec, cache="dual"), target, 1.0, 0.5) is None


def test_the_share_of_a_run_of_dare_o_is_found_though_its_work_jumps_at_0():
    model = "llada:layers=8,d=64,heads=2,ffn=64,vocab=1024"
    spec, target = replace(SHORT, cache="dare_o"), Target(model, known_model(model), 40)
    none, few, many = (
        simulate(spec, target, Assumptions(1.0, share)).recomputed for share in (0.0, 0.01, 0.3)
    )
    assert few > 2 * none
    for recomputed in (few, many):
        found = simulate(spec, target, Assumptions(1.0, share_of(spec, target, 1.0, recomputed)))
        assert found.recomputed == pytest.approx(recomputed, rel=0.01)


@pytest.mark.parametrize("unmasker", ["dynamic", "threshold"])
def test_steps_that_confidence_decides_are_assumed(unmasker):
    found = of(unmasker=unmasker, given=Assumptions(4.0))
    assert not found["exact"]
    assert found["steps"] < of(unmasker="quota", given=Assumptions(4.0))["steps"] / 3
    assert "commits as many tokens as the model's confidence allows" in found["assumed"][0]


def test_the_nearest_figure_has_the_methods_conditions():
    spec = replace(SPEC, cache="dllm_cache", gen_length=256, steps=256)
    base = nearest_figure(spec, "GSAI-ML/LLaDA-8B-Base", "RTX 4090")
    assert base.figure.table == "Table 1"
    assert "LLaDA-8B-Base" in base.figure.conditions
    assert "model" in base.agrees
    dream = nearest_figure(spec, "Dream-org/Dream-v0-Base-7B", "RTX 4090")
    assert "Dream-7B-Base" in dream.figure.conditions
    assert "→" in nearest_figure(SPEC, LLADA, "RTX 4090").figure.figure


@pytest.mark.parametrize(
    ("changes", "gpu", "agrees", "differs"),
    [
        ({"cache": "dual", "gen_length": 1024}, "A100 SXM 80 GB", ("GPU", LENGTH), ()),
        ({"cache": "dual", "gen_length": 32}, "H100 SXM", (), ("GPU", LENGTH)),
        ({"cache": "dkv_cache", "gen_length": 256}, "B200", ("GPU",), ("value 8",)),
    ],
)  # fmt: skip
def test_what_agrees_with_a_published_figure_is_read_in_whole_words(changes, gpu, agrees, differs):
    spec = replace(SPEC, block_length=32, **changes)
    found = nearest_figure(spec, LLADA, gpu)
    assert set(agrees) <= set(found.agrees)
    assert set(differs) <= set(found.differs)


SUFFIX = " That is all, folks."


@pytest.mark.parametrize("changes", [{}, {"cache": "dual"}, {"cfg_scale": 1.0}])
def test_the_tokens_of_a_suffix_are_counted_as_a_run_counts_them(session, changes):
    fields = {"model": "micro", "prompt": "2 + 3 = ?", "suffix": SUFFIX, "gen_length": 8}
    spec = RunSpec.from_dict(fields | {"block_length": 8, "steps": 8} | changes)
    trace = trace_of(session.run(spec))
    found = session.estimate(spec, spec.model, "h100")
    metrics = trace.meta["metrics"]
    assert found["exact"]
    assert found["flops"] == pytest.approx(metrics["gflops"] * 1e9)
    assert found["suffix_tokens"] == session.plan(spec)["suffix_tokens"] > 0
    assert found["memory"]["cache_bytes"] == metrics["cache_bytes"]


def test_a_suffix_of_unknown_length_is_said_to_be_left_out():
    found = of(suffix=SUFFIX)
    assert any("suffix is not included" in text for text in found["assumed"])
    assert not found["exact"]


def test_the_share_of_a_recorded_run_with_a_suffix_is_that_of_its_rows(session):
    fields = {"model": "micro", "prompt": "2 + 3 = ?", "suffix": SUFFIX * 4, "gen_length": 8}
    spec = RunSpec.from_dict(fields | {"block_length": 8, "steps": 8, "cache": "d2_cache"})
    trace = trace_of(session.run(spec))
    found = session.estimate(spec, spec.model, "h100", recorded=trace)
    assert found["recomputed"] == pytest.approx(trace.meta["metrics"]["recomputed"], abs=0.02)


def test_a_run_whose_answer_is_given_has_nothing_to_estimate():
    with pytest.raises(ValueError, match="fixed: every token of the answer is given"):
        of(fixed=tuple((place, 5) for place in range(64)))


def test_given_tokens_are_not_counted_as_decoded():
    found = of(fixed=tuple((place, 5) for place in range(32)))
    time = found["time"]
    assert time["positions_per_s"] * time["run_seconds"] == pytest.approx(found["positions"])
    assert found["positions"] == 32


@pytest.mark.parametrize("filled", [False, True])
def test_tokens_filled_after_the_end_of_a_recorded_run_are_said(session, recorded, filled):
    trace = Trace.from_bytes(recorded.to_bytes())
    confidence = trace.arrays()["commit_confidence"]
    confidence[-5:] = np.nan if filled else 1.0
    spec = replace(RunSpec.from_dict(trace.meta["spec"]), model="micro")
    found = session.estimate(spec, "micro", "h100", recorded=trace)
    words = " ".join(found["assumed"])
    assert found["forwards"] == trace.steps
    assert ("no end of text cuts the run short" in words) != filled
    assert ("5 of its tokens were filled" in words) == filled


def test_the_guider_decides_how_many_tokens_are_committed():
    guided, threshold = (of(unmasker=name)["assumed"][0] for name in ("guided", "threshold"))
    assert guided.startswith("The guider decides how many tokens")
    assert "confidence" not in guided
    assert "confidence allows" in threshold
