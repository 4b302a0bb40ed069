"""Predictions: FLOPs against real runs, errors by age, fits and rank correlation."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from engine.advise import narrow_model
from engine.advise.narrow_model import NarrowModel, _scheduled, flop_scale, step_flops
from engine.advise.prediction import (
    Prediction,
    fit_sensitivity,
    fit_times,
    fitted,
    predict_steps,
    rank_correlation,
)
from engine.advise.reuse_error import (
    ReuseError,
    RunReuse,
    _by_age,
    _pairs,
    _sums_by_age,
    drift_profile,
    measure_reuse_error,
)
from engine.advise.search_space import with_cache
from engine.config.spec import RunSpec
from engine.core.drift_codes import DRIFTS
from engine.core.events import PARTS, StepEvent
from engine.core.files import ASSETS
from engine.models.loading.families import adapter_class, read_model_info
from engine.models.loading.random_weights import PUBLISHED, random_adapter
from engine.trace.trace import Trace

RATIO = "dllm_cache.recompute_ratio"
BASE = RunSpec(model="micro", prompt="Ann has 3 pens.", gen_length=16, block_length=8, steps=16)


def run(session, spec):
    """The trace of a run, its FLOPs by part and its mean recomputed share."""
    trace, flops, shares = Trace(), np.zeros(len(PARTS)), []
    for event in session.run(spec):
        trace.append(event)
        if isinstance(event, StepEvent):
            flops += step_flops(event)
            shares.append(event.recomputed)
    return trace, flops, np.mean(shares)


def errors_of(trace):
    """The errors of reuse that one exact run gives."""
    return measure_reuse_error([RunReuse.of(trace)])


@pytest.fixture
def exact(session):
    return run(session, replace(BASE, record="layers"))


@pytest.fixture
def narrow(session):
    return NarrowModel(session.model_info(BASE.model))


@pytest.mark.parametrize(
    ("cache", "knobs"),
    [
        ("dllm_cache", {"dllm_cache.response_interval": 3}),
        ("spa_cache", {}),
        ("dual", {"dual.refresh_interval": 4}),
        ("prefix", {}),
        ("dkv_cache", {}),
        ("freecache", {"freecache.block": 8}),
    ],
)
def test_the_flops_of_scheduled_methods_are_predicted_exactly(session, exact, narrow, cache, knobs):
    trace, plain, _ = exact
    tokens = int(trace.arrays()["prompt_mask"].sum())
    spec = with_cache(BASE, cache, knobs)
    _, flops, share = run(session, spec)
    scale = flop_scale(plain, list(narrow.run(BASE, tokens)))
    errors = errors_of(trace)
    found = predict_steps(narrow, scale, errors, spec, tokens, trace.steps)
    assert found.gflops.sum() * 1e9 == pytest.approx(flops.sum(), rel=1e-9)
    assert found.recomputed == pytest.approx(share, rel=1e-9)
    assert found.error > 0


def test_predictions_rank_settings_as_their_measured_runs_do(session, exact, narrow):
    """FLOPs against those of real runs, and errors against those of an exact forward beside them.

    Negative control: the predictions in reverse order.
    """
    trace, plain, _ = exact
    tokens = int(trace.arrays()["prompt_mask"].sum())
    scale, errors = flop_scale(plain, list(narrow.run(BASE, tokens))), errors_of(trace)
    work, true_work, risk, true_risk = [], [], [], []
    for interval in (2, 3, 5, 8, 16):
        knobs = {"dllm_cache.response_interval": interval, RATIO: 0.0}
        spec = with_cache(BASE, "dllm_cache", knobs)
        found = predict_steps(narrow, scale, errors, spec, tokens, trace.steps)
        probed, flops, _ = run(session, replace(spec, record="probe", probe_steps=16))
        work.append(found.gflops.sum())
        true_work.append(flops.sum())
        risk.append(found.error)
        true_risk.append(np.nansum(DRIFTS[probed.cells("probe_error")]))
    assert rank_correlation(work, true_work) == pytest.approx(1)
    assert rank_correlation(risk, true_risk) > 0.8
    assert rank_correlation(work[::-1], true_work) < 0


def test_plain_decoding_has_no_error(exact, narrow):
    trace, plain, _ = exact
    tokens = int(trace.arrays()["prompt_mask"].sum())
    scale = flop_scale(plain, list(narrow.run(BASE, tokens)))
    found = predict_steps(narrow, scale, errors_of(trace), BASE, tokens, trace.steps)
    assert found.error == 0
    assert found.recomputed == 1


def test_a_run_without_a_schedule_has_as_many_steps_as_it_is_given(narrow):
    spec = replace(BASE, unmasker="threshold", cache="dual")
    assert len(list(narrow.run(spec, 10, steps=4))) == 4
    assert len(list(narrow.run(spec, 10, steps=1))) == 2, "each block needs one"


@pytest.mark.parametrize("eos", ["official", "fill_safe", "fill_eager"])
def test_no_random_token_ends_the_run_of_a_narrow_model(session, monkeypatch, eos):
    def ending(config, *options):
        """A model whose logits are all equal, so that it proposes token 0, which ends a text."""
        adapter = random_adapter({**config, "eos_token_id": 0, "pad_token_id": 0}, *options)
        adapter.head.weight.zero_()
        return adapter

    monkeypatch.setattr(narrow_model, "random_adapter", ending)
    monkeypatch.setattr(narrow_model, "random_prompt", lambda info, tokens: [5] * tokens)
    narrow = NarrowModel(session.model_info(BASE.model))
    assert len(list(narrow.run(replace(BASE, eos=eos), 10))) == BASE.steps
    assert not _scheduled(replace(BASE, stop=("7",)), None).stop


@pytest.mark.parametrize("family", PUBLISHED)
def test_a_model_of_every_family_has_a_narrow_one(family):
    config = PUBLISHED[family] | {"num_hidden_layers": 2, "n_layers": 2}
    info = adapter_class(config).read_info(config)
    length = info.block_size or 16
    spec = RunSpec(prompt="x", gen_length=length, block_length=length, steps=4)
    first = next(NarrowModel(info).run(spec, 10))
    assert len(first.rows) == info.layers == 2


def test_a_step_has_rows_for_the_whole_canvas(narrow):
    """Behind the answer stand a suffix, and the rest of the last block of a block model."""
    first = next(narrow.run(replace(BASE, suffix=" pens"), 10))
    assert first.rows.shape[-1] > 10 + BASE.gen_length
    assert first.rows[:-1].all()
    block = NarrowModel(read_model_info(ASSETS / "models" / "tiny-block"))
    assert next(block.run(replace(BASE, block_length=16), 10)).rows.shape[-1] == 32


def test_the_error_of_a_step_is_the_age_s_similarity(exact):
    """The similarity of recorded steps, read in another way than `measure_reuse_error` does."""
    trace, _, _ = exact
    found, arrays = errors_of(trace), trace.arrays()
    prompt = int(arrays["prompt_mask"].sum())
    codes, pair, by_age = arrays["similarity"], 0, []
    answer = [i for i, (low, _) in enumerate(arrays["similarity_group"]) if low >= prompt]
    for later in range(len(arrays["similarity_step"])):
        for earlier in range(later + 1):
            if later - earlier == 3:
                by_age += [DRIFTS[codes[pair, 1, 1, group]] for group in answer]
            pair += 1
    assert found.errors[1, 1, 1, 3] == pytest.approx(np.mean(by_age))
    assert (found.errors[..., 0] == 0).all()


def test_the_rows_that_drift_most_leave_least():
    errors = np.zeros((1, 4, 2, 3))
    errors[..., 1:] = 0.5
    left = np.tile(np.interp(np.linspace(0, 1, 21), [0, 0.5, 1], [1, 0.1, 0]), (1, 2, 1))
    found = ReuseError(errors, left)
    ages, fresh = np.ones((1, 4, 4), int), np.zeros((1, 4, 4), bool)
    assert found.of_rows(ages, fresh, 0) == pytest.approx(0.5)
    fresh[..., :2], ages[..., :2] = True, 0
    assert found.of_rows(ages, fresh, 0) == pytest.approx(0.5 * 0.5 * 0.1 / 0.5)
    assert found.of_rows(np.zeros_like(ages), np.ones_like(fresh), 0) == 0


def test_drifts_of_a_layer_are_counted_once_a_row_and_step(exact):
    trace, _, _ = exact
    profile = drift_profile([RunReuse.of(trace)] * 2, "v")
    rows = len(trace.arrays()["canvas"]) * (trace.steps - 1)
    assert (profile.counts.sum(1) == 2 * rows).all()


def test_a_run_of_one_step_has_no_drifts(session):
    trace, _, _ = run(session, replace(BASE, gen_length=8, steps=1, record="layers"))
    assert trace.steps == 1
    assert not errors_of(trace).left.any()


def test_traces_without_drifts_are_refused(session):
    trace, _, _ = run(session, BASE)
    with pytest.raises(ValueError, match=r"^record: "):
        RunReuse.of(trace)


def test_a_block_that_begins_with_tokens_of_the_prompt_is_of_the_answer():
    """Its group of positions begins before the prompt ends; without it the answer has no errors."""
    arrays = {
        "similarity_step": np.arange(2), "similarity": np.zeros((3, 2, 1, 2), np.uint8),
        "similarity_group": np.array([[0, 16], [16, 32]]), "prompt_mask": np.arange(32) < 18,
    }  # fmt: skip
    trace = SimpleNamespace(
        arrays=lambda: arrays, prompt_length=18, shared=lambda size: 18 % size,
        meta={"spec": {"block_length": 16}},
    )  # fmt: skip
    assert _pairs(trace)[2].tolist() == [0, 1]


def test_pairs_of_steps_without_a_value_are_not_pairs_without_an_error():
    """Of the pairs of age 1 one has an error of 0.4, the other none: a step had not computed it."""
    errors = np.array([0.0, 0.4, 0.0, np.nan, np.nan, 0.0])[:, None, None, None]
    ages = np.array([0, 1, 0, 1, 2, 0])
    found = _by_age([_sums_by_age(ages, np.tile(errors, (1, 2, 1, 1)), np.array([1]))])
    assert found[0, 1, 1].tolist() == pytest.approx([0, 0.4, 0.4])
    assert not found[0, 1, 0].any()


def test_times_are_fitted_without_negative_terms():
    rates = np.array([3.0, 5.0, 2.0])
    work = [(4.0, 2.0, 0.0), (8.0, 2.0, 5.0), (8.0, 10.0, 1.0), (8.0, 1.0, 7.0)]
    assert fit_times([(w, float(rates @ w)) for w in work]) == pytest.approx(rates)
    falling = fit_times([((1.0, 1.0, 0.0), 10.0), ((1.0, 2.0, 0.0), 9.0)])
    assert falling.min() == 0
    assert falling @ (1.0, 1.5, 0.0) == pytest.approx(9.5)
    with pytest.raises(ValueError, match=r"^runs: "):
        fit_times([])


def test_what_is_kept_falls_with_the_error():
    pairs = [(0.1, np.exp(-0.2)), (0.4, np.exp(-0.8))]
    assert fit_sensitivity(pairs) == pytest.approx(2)
    assert fit_sensitivity([(0.0, 0.5)]) == 0
    one = fitted(Prediction(np.ones(4), 0.5, 6, 0.4), np.array([1.0, 2.0, 0.5]), 2.0)
    assert (one.time, one.kept) == (pytest.approx(15), pytest.approx(np.exp(-0.8)))


def test_a_layer_that_chooses_rows_counts_as_a_selection(exact, narrow):
    trace, plain, _ = exact
    tokens = int(trace.arrays()["prompt_mask"].sum())
    scale, errors = flop_scale(plain, list(narrow.run(BASE, tokens))), errors_of(trace)
    knobs = {"dllm_cache.response_interval": 4, "dllm_cache.prompt_interval": None}
    chosen, none = (
        predict_steps(
            narrow, scale, errors, with_cache(BASE, "dllm_cache", knobs | {RATIO: ratio}),
            tokens, 16,
        ).selections
        for ratio in (0.25, 0.0)
    )  # fmt: skip
    layers = len(errors.errors)
    assert chosen == (16 - 4) * (layers - 1), "all rows of layer 1 are computed"
    assert none == 0


@pytest.mark.parametrize(
    ("a", "b", "want"),
    [
        ([1, 2, 3, 4], [10, 20, 30, 40], 1.0),
        ([1, 2, 3, 4], [4, 3, 2, 1], -1.0),
        ([1, 2, 3, 4, 5], [2, 1, 4, 3, 5], 0.8),  # 1 - 6 * 4 / (5 * 24)
        ([1, 1, 2], [1, 2, 3], np.sqrt(3) / 2),
    ],
)
def test_rank_correlation(a, b, want):
    assert rank_correlation(a, b) == pytest.approx(want)


@pytest.mark.parametrize(("a", "b"), [([1, 2], [3, 4]), ([1, 1, 1], [1, 2, 3]), ([], [])])
def test_two_numbers_or_equal_ones_have_no_rank_correlation(a, b):
    assert rank_correlation(a, b) is None


def test_there_is_no_rank_correlation_of_equal_values():
    assert rank_correlation([1, 1], [1, 2]) is None
    assert rank_correlation([1], [2]) is None
