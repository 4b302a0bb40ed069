"""Figures of drift, similarity and drift counts: their numbers are those of the trace."""

import json

import numpy as np
import pytest

from engine.core.drift_codes import NOT_EVALUATED, decode
from engine.core.events import QUANTITIES
from engine.core.files import ASSETS
from engine.trace.trace import Trace
from inspector.figures import counts, drift, similarity
from inspector.views.similarity import comparison
from tests.inspector.figure_traces import (
    FFN,
    V,
    changed,
    dual,
    example,
    named,
    narrow,
    plain,
)


@pytest.mark.parametrize("quantity", QUANTITIES)
def test_drift_of_a_layer_is_decoded_and_blank_where_nothing_was_evaluated(quantity):
    heat = drift.figure(dual(), layer=3, quantity=quantity).data[0]
    codes = dual().arrays()["drift"][:, 3, QUANTITIES.index(quantity)]
    assert heat.z.dtype == np.float32
    np.testing.assert_allclose(heat.z, decode(codes), rtol=1e-6)
    assert (np.isnan(heat.z) == (codes == NOT_EVALUATED)).all()
    assert 0 < np.isnan(heat.z).mean() < 1


def test_drift_of_a_step_has_a_row_for_each_layer():
    heat = drift.figure(dual(), step=7, quantity="attn").data[0]
    codes = dual().arrays()["drift"][7, :, QUANTITIES.index("attn")]
    np.testing.assert_allclose(heat.z, decode(codes), rtol=1e-6)
    assert heat.z.shape[0] == 8


def test_drift_of_a_narrowed_run_is_blank_where_nothing_was_recorded():
    codes = dual().arrays()["drift"][:, :, V].copy()
    recorded = np.zeros(codes.shape, bool)
    recorded[np.ix_(np.arange(0, len(codes), 2), [2, 4], np.arange(220, 250))] = True
    codes[~recorded] = NOT_EVALUATED
    for part, index in (({"layer": 4}, (slice(None), 4)), ({"step": 6}, 6)):
        heat = drift.figure(narrow(), **part).data[0]
        np.testing.assert_allclose(heat.z, decode(codes[index]), rtol=1e-6)
        assert np.isfinite(heat.z).any()
    above, seen = counts.counts(narrow(), threshold=0.01)
    np.testing.assert_array_equal(seen, (codes != NOT_EVALUATED).sum(-1).T)
    np.testing.assert_array_equal(above, (decode(codes) > 0.01).sum(-1).T)


def test_similarity_of_a_narrowed_run_is_that_of_the_whole_one():
    found, whole = (similarity.figure(one, layer=4).data[0].z for one in (narrow(), dual()))
    np.testing.assert_array_equal(found, whole)


def test_dots_of_drift_are_the_steps_that_unmasked_a_token():
    dots = named(drift.figure(dual(), layer=0), "token committed")
    arrays = dual().arrays()
    pairs = zip(arrays["commit_position"] + 1, arrays["commit_step"] + 1, strict=True)
    assert sorted(zip(dots.x, dots.y, strict=True)) == sorted(pairs)


@pytest.mark.parametrize("rows", ["step", "layer"])
def test_axes_count_from_one_downwards(rows):
    figure = drift.figure(dual(), **({"layer": 0} if rows == "step" else {"step": 0}))
    count = len(figure.data[0].z)
    assert (figure.data[0].x0, figure.data[0].y0) == (1, 1)
    assert figure.layout.yaxis.title.text == rows
    assert figure.layout.yaxis.range == (count + 0.5, 0.5)
    assert figure.layout.xaxis.title.text == "position"


def test_titles_name_the_method_the_layer_and_the_quantity():
    text = drift.figure(dual(), layer=3, quantity="ffn").layout.title.text
    assert text.startswith("Drift of feed-forward output, layer 4: step by position")
    assert "tiny-llada, cache dual, unmasker threshold" in text


def test_names_of_an_imported_trace_are_escaped():
    trace = changed(dual())
    trace.meta["spec"]["cache"] = '<a href="x">dual</a>'
    assert "<a" not in drift.figure(trace, layer=0).layout.title.text


def test_a_heat_map_is_sent_as_a_typed_array_without_texts():
    heat = json.loads(drift.figure(plain(), layer=0).to_json())["data"][0]
    assert heat["z"]["dtype"] == "f4"
    assert not {"text", "customdata"} & set(heat)


def test_similarity_holds_the_code_of_every_pair():
    figure = similarity.figure(plain(), layer=3, group="block 1")
    heat, codes = figure.data[0], comparison(plain())["codes"]
    steps = plain().arrays()["similarity_step"]
    assert heat.x.tolist() == heat.y.tolist() == (steps + 1).tolist()
    for high, low in ((20, 3), (47, 46), (5, 5)):
        want = decode(codes[high * (high + 1) // 2 + low, V, 3, 1])
        assert heat.z[high, low] == heat.z[low, high] == pytest.approx(want, rel=1e-6)
    assert heat.z[20, 3] > 0


def test_the_linear_scale_of_similarity_is_the_cosine():
    log, linear = (
        similarity.figure(plain(), layer=1, quantity="k", scale=scale).data[0].z
        for scale in ("log", "linear")
    )
    np.testing.assert_allclose(linear, 1 - log, atol=1e-6)


def test_similarity_is_of_the_first_group_unless_one_is_named():
    assert similarity.groups(plain())[0] == "prompt"
    default, prompt, block = (
        similarity.figure(plain(), layer=1, group=group).data[0].z
        for group in (None, "prompt", "block 1")
    )
    np.testing.assert_array_equal(default, prompt)
    assert not np.array_equal(default, block)


def test_groups_are_named_as_on_the_page():
    trace = plain()
    assert similarity.groups(trace) == ["prompt", "block 1", "block 2", "block 3", "block 4 (last)"]
    one = changed(trace)
    one.meta["spec"]["block_length"] = 48
    assert similarity.groups(one)[:2] == ["prompt", "block 1"]
    shared = Trace.load(ASSETS / "examples" / "lessons" / "block_frozen.npz")
    names = ["prompt", *(f"block {n}" for n in range(1, 5)), "block 5 (last)"]
    assert similarity.groups(shared) == names


def test_text_after_the_answer_is_no_block():
    arrays = plain().arrays()
    names = ("canvas", "prompt_mask", "fixed_mask")
    behind = {name: np.concatenate((arrays[name], arrays[name][-8:])) for name in names}
    trace = changed(plain(), **behind)
    assert similarity.groups(trace)[-1] == "block 4 (last)"
    assert similarity.groups(example("a")) == []


def test_steps_that_were_not_compared_leave_a_gap_in_the_axes():
    trace = plain()
    arrays = trace.arrays()
    kept = arrays["similarity_step"][:3] * 2
    sparse = changed(trace, similarity=arrays["similarity"][:6], similarity_step=kept)
    assert similarity.figure(sparse, layer=0).data[0].x.tolist() == [1, 3, 5]


@pytest.mark.parametrize("threshold", [0, 0.05, 2])
def test_counts_are_those_of_the_decoded_drifts(threshold):
    above, seen = counts.counts(dual(), quantity="ffn", threshold=threshold)
    drifts = decode(dual().arrays()["drift"][:, :, FFN])
    np.testing.assert_array_equal(above, (drifts > threshold).sum(-1).T)
    np.testing.assert_array_equal(seen, (~np.isnan(drifts)).sum(-1).T)


def test_counts_may_be_of_the_answer_only():
    trace = changed(dual())
    prompt = int(trace.arrays()["prompt_mask"].sum())
    codes = trace.arrays()["drift"][7, 2, V]
    for shift in (0, 1):
        trace.meta["model"]["logit_shift"] = shift
        _, seen = counts.counts(trace, rows="answer")
        assert seen[2, 7] == (codes[prompt - shift :] != NOT_EVALUATED).sum()


def test_counts_of_the_answer_are_named_as_on_the_page():
    title = counts.figure(dual(), rows="answer").layout.title.text
    assert title.startswith("Rows in the answer with a drift of ")


def test_counts_are_drawn_as_shares_and_blank_where_no_row_was_evaluated():
    figure = counts.figure(dual(), threshold=0.01)
    above, seen = counts.counts(dual(), threshold=0.01)
    heat, bars = figure.data[0], named(figure, "drifted, of the evaluated rows")
    assert heat.z[2, 7] == pytest.approx(above[2, 7] / seen[2, 7])
    assert (np.isnan(heat.z) == (seen == 0)).all()
    assert np.isnan(heat.z[:, 0]).all()
    np.testing.assert_allclose(bars.x, 100 * above.sum(1) / seen.sum(1), rtol=1e-5)
    assert bars.y.tolist() == list(range(1, 9))


def test_counts_show_the_budget_of_a_method_that_has_one():
    trace = example("lessons/spa_cache")
    line = next(one for one in counts.figure(trace).data if (one.name or "").startswith("budget"))
    np.testing.assert_allclose(line.x, 100 * np.array(trace.meta["facts"]["budget"]))
    assert not [one for one in counts.figure(dual()).data if (one.name or "").startswith("budget")]


@pytest.mark.parametrize("budget", [[0.5] * 3, "0.5", ["x"] * 8])
def test_a_budget_that_does_not_fit_the_layers_is_left_out(budget):
    trace = changed(dual())
    trace.meta["facts"] = {"budget": budget}
    assert len(counts.figure(trace).data) == len(counts.figure(dual()).data)
