"""Slices: each is the part of the whole arrays that was asked for."""

from types import SimpleNamespace

import numpy as np
import pytest

from engine.core.drift_codes import NOT_EVALUATED, decode
from engine.core.events import QUANTITIES, SITES
from inspector.slices import registry
from inspector.slices.fields import SliceError
from inspector.slices.message import Cut, encoded
from inspector.views import drift, guider
from inspector.views.queries import NEVER
from inspector.views.registry import VIEWS
from tests.inspector.slice_parts import (
    LAYERS,
    POSITIONS,
    PROMPT,
    STEPS,
    WHOLE,
    cells,
    check_part,
    cut,
    whole_trace,
)
from tests.inspector.unpacked import decoded, unpacked
from tests.support.traces import trace_of

V = QUANTITIES.index("v")


@pytest.fixture(scope="module")
def trace():
    return whole_trace()


@pytest.fixture(scope="module")
def held(trace):
    return trace.arrays()


def test_a_layer_of_drifts_is_that_of_the_array(trace, held):
    found = cells(trace, "drift", quantity="v", layer=2)
    assert np.array_equal(found, held["drift"][:, 2, V])


def test_a_step_of_drifts_is_that_of_the_array(trace, held):
    found = cells(trace, "drift", quantity="q0", step=7)
    assert np.array_equal(found, held["drift"][7, :, QUANTITIES.index("q0")])


def test_a_layer_and_a_probe_of_errors_are_those_of_the_array(trace, held):
    of_layer = cells(trace, "error", quantity="attn", layer=1)
    assert np.array_equal(of_layer, held["probe_error"][:, 1, 2])
    of_probe = cells(trace, "error", quantity="attn", probe=5)
    assert np.array_equal(of_probe, held["probe_error"][5, :, 2])


def test_plan_bits_of_a_layer_and_of_a_step_are_those_of_the_array(trace, held):
    assert np.array_equal(cut(trace, "plan", layer=1)[0]["bits"], held["plan"][:, 1])
    assert np.array_equal(cut(trace, "plan", step=9)[0]["bits"], held["plan"][9])
    found, facts = cut(trace, "plan", layer=1, quantity="v", step_from=4, step_to=9)
    assert np.array_equal(found["bits"], held["plan"][4:9, 1, 1:2])
    assert facts == {"step_from": 4, "step_to": 9}


def test_a_map_of_the_plan_has_each_row_as_none_or_all(trace):
    found = cells(trace, "plan", quantity="ffn", layer=2)
    assert np.array_equal(found, 254 * trace.recompute_map()[:, 2, 3])


def test_a_token_has_its_drifts_and_sites_in_all_steps_and_layers(trace, held):
    found, facts = cut(trace, "token", position=45, step_from=3, step_to=11)
    assert facts["quantities"] == list(QUANTITIES)
    want = np.moveaxis(held["drift"][3:11, :, :, 45], 2, 0)
    assert np.array_equal(found["drift"], want)
    bits = [found["sites"] >> site & 1 for site in range(len(SITES))]
    assert np.array_equal(np.stack(bits, -1), trace.recompute_map()[3:11, :, :, 45])


@pytest.mark.parametrize("low", [0, PROMPT])
def test_counts_are_those_of_a_plain_comparison(trace, held, low):
    codes = held["drift"][:, :, V, low:]
    known = codes != NOT_EVALUATED
    window = {"quantity": "v", "position_from": low}
    found = cut(trace, "drift", "counts", **window)[0]["rows"]
    assert np.array_equal(found, known.sum(-1))
    for code in (0, 120, 254):
        found = cut(trace, "drift", "counts", code=code, **window)[0]["rows"]
        assert np.array_equal(found, (known & (codes > code)).sum(-1))


def test_rows_recomputed_are_the_bits_of_the_window(trace):
    found = cut(trace, "plan", "counts", position_from=5, position_to=60)[0]["done"]
    assert np.array_equal(found, trace.recompute_map()[..., 5:60].sum(-1))


def test_ages_are_those_of_a_plain_loop(trace):
    found = cut(trace, "queries", "age", quantity="k", layer=1)[0]["cells"]
    fresh = trace.recompute_map()[:, 1, 0]
    for place in range(POSITIONS):
        last = None
        for step in range(STEPS):
            last = step if fresh[step, place] else last
            assert found[step, place] == (NEVER if last is None else step - last)


@pytest.mark.parametrize(("view", "part", "fields", "names"), WHOLE)
def test_a_slice_is_a_part_of_the_views_document(trace, view, part, fields, names):
    check_part(trace, view, part, fields, names)


@pytest.mark.parametrize(
    ("view", "part"), [("frame", ""), ("why", ""), ("queries", "facts"), ("guider", "facts")]
)
def test_facts_are_those_of_the_views_document(trace, view, part):
    facts, whole = cut(trace, view, part)[1], VIEWS[view](trace)
    assert facts
    assert facts == {name: whole[name] for name in facts}


@pytest.mark.parametrize(("rule", "named"), [("threshold", "threshold"), (None, ""), (["a"], "")])
def test_the_frame_names_the_rule_of_the_run_if_it_has_one(trace, monkeypatch, rule, named):
    monkeypatch.setitem(trace.meta, "spec", trace.meta["spec"] | {"unmasker": rule})
    assert cut(trace, "frame")[1]["unmasker"] == named


def test_all_layers_of_a_scatter_count_some_steps_of_many(trace, monkeypatch):
    whole, facts = cut(trace, "scatter", x="v", y="attn")
    assert facts == {"every": 1}
    counts = unpacked(VIEWS["scatter"](trace)["counts"])[0]
    assert np.array_equal(whole["counts"], counts.sum(0))
    monkeypatch.setattr(drift, "MAX_ROWS", LAYERS * STEPS * POSITIONS // 4)
    some, facts = cut(trace, "scatter", x="v", y="attn")
    assert facts == {"every": 4}
    assert 0 < some["rows"][-1] < whole["rows"][-1]
    document = VIEWS["scatter"](trace)
    assert document["every"] == 4
    assert np.array_equal(unpacked(document["counts"])[0].sum(0), some["counts"])
    assert document["most"] == (STEPS // 4 - 1) * POSITIONS


def test_similarity_compares_each_pair_once(trace, held):
    asked = {"quantity": "v", "layer": 2}
    matrix = cells(trace, "similarity", group=1, **asked)
    codes = held["similarity"]
    for high, low in ((0, 0), (7, 3), (39, 38)):
        want = codes[high * (high + 1) // 2 + low, 1, 2, 1]
        assert matrix[high, low] == matrix[low, high] == want
    row = cut(trace, "similarity", "row", index=9, **asked)[0]["codes"]
    assert np.array_equal(row, codes[45:55, 1, 2])
    change = cut(trace, "similarity", "facts")[0]["change"]
    pairs = [step * (step + 1) // 2 + step - 1 for step in range(1, STEPS)]
    assert np.allclose(change, np.nanmean(decode(codes[pairs]), 0), equal_nan=True)


def test_predictions_are_those_of_one_probe(trace, held):
    found = cut(trace, "error", "predictions", probe=2)[0]
    own = held["probe_row"] == 2
    assert np.array_equal(found["top"], held["probe_top"][own])
    assert np.array_equal(found["tv"], held["probe_tv"][own])


def test_candidates_of_a_step_and_the_map_of_the_best(trace, held):
    own = held["candidate_step"] == 6
    found, facts = cut(trace, "candidates", "list", step=6)
    assert np.array_equal(found["ids"], held["candidate_id"][own])
    assert facts["pieces"][str(found["ids"][0, 0])] == f"t{found['ids'][0, 0]}"
    place = int(found["position"][2])
    one = cut(trace, "candidates", "list", step=6, position=place)[0]
    assert np.array_equal(one["probs"], found["probs"][2:3])
    shown, facts = cut(trace, "candidates", "map", position_from=PROMPT)
    assert facts["columns"]["from"] == PROMPT
    shares = shown["cells"][6, found["position"] - PROMPT] / facts["scale"]
    assert np.allclose(shares, found["probs"][:, 0], atol=0.5 / 254)
    assert (shown["cells"][6] != 255).sum() == own.sum()


def test_a_draft_has_the_guiders_tokens_that_spell_it(trace, held):
    found, facts = cut(trace, "guider", "step", step=11)
    own = held["draft_step"] == 11
    assert np.array_equal(found["draft_id"], held["draft_id"][own])
    assert np.array_equal(found["span"], np.repeat(np.arange(own.sum())[:, None], 2, 1))
    assert set(facts["pieces"]) == {str(i) for i in found["draft_id"]}


def test_points_of_drafted_tokens_have_the_verdict_of_their_cell(trace, held):
    found, facts = cut(trace, "guider", "points", step_from=2, step_to=30)
    assert facts == {"step_from": 2, "step_to": 30, "every": 1}
    own = (held["draft_step"] >= 2) & (held["draft_step"] < 30)
    assert np.array_equal(found["draft_p_g"], held["draft_p_g"][own])
    shown = cut(trace, "guider", "map")[0]["cells"]
    want = shown[held["draft_step"][own], held["draft_position"][own] - PROMPT]
    assert np.array_equal(found["verdict"], want)


def test_a_cell_of_several_verdicts_has_the_first_in_the_legend(trace):
    found, facts = cut(trace, "guider", "map", width=1, height=1)
    verdicts = cut(trace, "guider", "map")[0]["cells"]
    assert found["cells"] == verdicts.min() < verdicts[verdicts != facts["no_data"]].max()
    assert facts["by"] == "minimum"


def test_of_many_drafted_tokens_those_of_some_steps_are_given(trace, held, monkeypatch):
    own = (held["draft_step"] >= 2) & (held["draft_step"] < 30)
    monkeypatch.setattr(guider, "MAX_POINTS", -(-int(own.sum()) // 4))
    found, facts = cut(trace, "guider", "points", step_from=2, step_to=30)
    assert facts["every"] == 4
    kept = own & ((held["draft_step"] - 2) % 4 == 0)
    assert 0 < kept.sum() < own.sum()
    assert np.array_equal(found["draft_p_g"], held["draft_p_g"][kept])
    assert np.array_equal(found["draft_step"], held["draft_step"][kept])


def test_steps_that_draft_nothing_are_not_among_those_that_are_left_out(held, monkeypatch):
    steps = 2 * np.unique(held["draft_step"], return_inverse=True)[1]  # every other drafts nothing
    count, arrays = len(steps), dict(held) | {"draft_step": steps}
    monkeypatch.setattr(guider, "MAX_POINTS", -(-count // 2))
    monkeypatch.setattr(guider, "places", lambda _: np.zeros(POSITIONS, int))
    monkeypatch.setattr(guider.verdicts, "cells", lambda _: np.zeros((2 * count, 1), np.uint8))
    sparse = SimpleNamespace(arrays=lambda: arrays)
    found, every = guider.probability_points(sparse, range(2 * count))
    assert every == 2
    assert np.array_equal(found["draft_step"], steps[steps % 4 == 0])


def test_arrays_begin_at_multiples_of_eight():
    arrays = {"a": np.arange(3, dtype=np.uint8), "b": np.array([[1.5, np.nan]], np.float32)}
    data = encoded(Cut(arrays, {"é": float("nan")}))
    found, facts = decoded(data)
    start = 4 + int.from_bytes(data[:4], "little")
    assert (start % 8, data[start + 8 : start + 12]) == (0, np.float32(1.5).tobytes())
    assert np.array_equal(found["b"], arrays["b"], equal_nan=True)
    assert facts == {"é": None}


@pytest.mark.parametrize(("view", "fields"), [
    ("drift", {"quantity": "v", "layer": 0}), ("plan", {"layer": 0}), ("token", {"position": 0}),
    ("similarity", {}), ("error", {}), ("candidates", {}), ("why", {}), ("schedule", {}),
    ("scatter", {"x": "v", "y": "ffn"}), ("queries", {}),
])  # fmt: skip
def test_a_run_that_was_not_recorded_says_so(traces, view, fields):
    with pytest.raises(SliceError, match="press Record") as found:
        cut(traces["a"], view, **fields)
    assert found.value.status == 404


def test_a_slice_that_is_too_large_is_refused(trace, monkeypatch):
    monkeypatch.setattr(registry, "MAX_MESSAGE", 1_000)
    with pytest.raises(SliceError, match="ask for a window of fewer steps") as found:
        cut(trace, "plan", layer=0)
    assert found.value.status == 413
    assert found.value.field == "step_to"


@pytest.mark.parametrize(
    ("view", "fields", "remedy"),
    [("schedule", {}, "^part: .* this part has no windows of steps"),
     ("drift", {"quantity": "v", "layer": 0}, "^height: .* ask for fewer rows or columns")],
)  # fmt: skip
def test_a_slice_that_is_too_large_names_only_what_it_takes(
    trace, monkeypatch, view, fields, remedy
):
    monkeypatch.setattr(registry, "MAX_MESSAGE", 100)
    with pytest.raises(SliceError, match=remedy) as found:
        cut(trace, view, **fields)
    assert found.value.status == 413


@pytest.mark.parametrize(("view", "each"), [("plan", 4), ("drift", 1)])
def test_counts_that_no_message_holds_are_refused_before_they_are_made(
    trace, monkeypatch, view, each
):
    fields = {"quantity": "v"} if view == "drift" else {}
    numbers = trace.steps * trace.layers * each
    monkeypatch.setattr("inspector.slices.tables.MOST_COUNTS", numbers)
    cut(trace, view, "counts", **fields)
    monkeypatch.setattr("inspector.slices.tables.MOST_COUNTS", numbers - 1)
    with pytest.raises(SliceError, match=r"^This run has too many steps and layers") as found:
        cut(trace, view, "counts", **fields)
    assert found.value.status == 404


def test_a_snapshot_keeps_what_it_had(events):
    mine = [event for lane, event in events if lane == "a"]
    grown = trace_of(mine[:5])
    held = grown.snapshot()
    steps = held.steps
    for event in mine[5:]:
        grown.append(event)
    assert (held.steps, len(held.arrays()["rows"])) == (steps, steps)
    assert grown.steps > steps
