"""Slices of a narrowed run: those of the whole run, without data where nothing was recorded."""

import tracemalloc
from types import SimpleNamespace

import numpy as np
import pytest

from engine.core.drift_codes import NOT_EVALUATED
from engine.core.events import QUANTITIES
from engine.trace.schema import empty_arrays
from inspector.slices.fields import SliceError
from inspector.views import drift
from inspector.views.frame import frame_facts
from inspector.views.registry import VIEWS
from inspector.views.similarity import changes
from tests.inspector.slice_parts import (
    LAYERS,
    WHOLE,
    cells,
    check_part,
    cut,
    whole_trace,
)
from tests.support.big_trace import make_big_trace, narrowed

V = QUANTITIES.index("v")


@pytest.fixture(scope="module")
def trace():
    return whole_trace()


KEPT = {"layers": [1, 2], "quantities": [0, 1, 4], "every": 3, "positions": slice(20, 90)}


@pytest.fixture(scope="module")
def narrow(trace):
    return narrowed(trace, **KEPT)


@pytest.mark.parametrize(
    "left_out", [{"layers": [1, 2]}, {"every": 2}, {"positions": slice(20, 90)}, {}]
)
def test_the_frame_tells_whether_layers_steps_or_positions_were_left_out(trace, left_out):
    whole = {"layers": range(LAYERS), "quantities": [V], "every": 1, "positions": slice(None)}
    assert frame_facts(narrowed(trace, **whole | left_out))["narrowed"] == bool(left_out)
    assert not frame_facts(trace)["narrowed"]


def test_the_frame_names_the_quantities_that_were_recorded(trace, narrow):
    assert frame_facts(narrow)["quantities"] == ["k", "v", "q0"]
    assert frame_facts(trace)["quantities"] == list(QUANTITIES)


def blanked(codes, *kept):
    """The codes with no data in places that were not kept; `kept` has a place for each axis."""
    places = [np.arange(size)[own] for size, own in zip(codes.shape, kept, strict=True)]
    out = np.full_like(codes, NOT_EVALUATED)
    out[np.ix_(*places)] = codes[np.ix_(*places)]
    return out


STEPS_KEPT, LAYERS_KEPT, PLACES = slice(0, None, 3), KEPT["layers"], KEPT["positions"]


@pytest.mark.parametrize("quantity", QUANTITIES)
@pytest.mark.parametrize("layer", range(LAYERS))
def test_a_layer_of_a_narrowed_run_is_blank_where_nothing_was_recorded(
    trace, narrow, quantity, layer
):
    asked = {"quantity": quantity, "layer": layer}
    found, whole = (cells(one, "drift", **asked) for one in (narrow, trace))
    recorded = layer in LAYERS_KEPT and QUANTITIES.index(quantity) in KEPT["quantities"]
    want = blanked(whole, STEPS_KEPT if recorded else [], PLACES)
    assert np.array_equal(found, want)


@pytest.mark.parametrize("step", [6, 7])
def test_a_step_and_a_window_of_a_narrowed_run_are_not_shifted(trace, narrow, step):
    asked = {"quantity": "q0", "step": step, "position_from": 11, "position_to": 40}
    found, whole = (cells(one, "drift", **asked) for one in (narrow, trace))
    layers = LAYERS_KEPT if step % 3 == 0 else []
    assert np.array_equal(found, blanked(whole, layers, slice(20 - 11, None)))


@pytest.mark.parametrize("position", [19, 45])
def test_a_token_of_a_narrowed_run_has_the_drifts_that_were_recorded(trace, narrow, position):
    asked = {"position": position, "step_from": 2, "step_to": 12}
    found, whole = (cut(one, "token", **asked)[0] for one in (narrow, trace))
    here = KEPT["quantities"] if position >= 20 else []
    assert np.array_equal(found["drift"], blanked(whole["drift"], here, slice(1, None, 3), [1, 2]))
    assert np.array_equal(found["sites"], whole["sites"])


def test_counts_of_a_narrowed_run_are_of_the_recorded_rows(narrow):
    asked = {"quantity": "v", "position_from": 5, "position_to": 60}
    for code in (None, 100):
        given = asked if code is None else asked | {"code": code}
        found = cut(narrow, "drift", "counts", **given)[0]["rows"]
        codes = narrow.cells("drift")[:, :, V, 5:60]
        want = (codes != NOT_EVALUATED) & (codes > (-1 if code is None else code))
        assert np.array_equal(found, want.sum(-1))
        assert found[::3, 1].any()
        assert not found[:, 0].any()
        assert not found[4].any()


def test_errors_of_a_narrowed_run_are_blank_where_nothing_was_recorded(trace, narrow):
    found, whole = (cells(one, "error", quantity="v", probe=5) for one in (narrow, trace))
    assert np.array_equal(found, blanked(whole, LAYERS_KEPT, PLACES))
    assert (cells(narrow, "error", quantity="ffn", layer=1) == NOT_EVALUATED).all()
    mean = cut(narrow, "error", "mean", quantity="v")[0]["mean"]
    recall = cut(narrow, "error", "recall", quantity="v")[0]["recall"]
    assert np.isnan(mean[:, 0]).all()
    assert np.isfinite(mean[:, 1:]).all()
    assert np.isnan(recall[:, 0]).all()
    assert np.isfinite(recall[1:, 1:]).any()


def test_similarity_of_a_narrowed_run_is_of_the_recorded_layers(trace, narrow):
    asked = {"quantity": "v", "group": 1}
    found, whole = (cells(one, "similarity", **asked, layer=2) for one in (narrow, trace))
    assert np.array_equal(found, whole)
    assert (cells(narrow, "similarity", **asked, layer=0) == NOT_EVALUATED).all()
    row = {"quantity": "k", "index": 9}
    found, whole = (
        cut(one, "similarity", "row", **row, layer=1)[0]["codes"] for one in (narrow, trace)
    )
    assert np.array_equal(found, whole)


def test_the_change_between_steps_is_blank_in_layers_that_were_not_recorded(trace, narrow):
    found, whole = (cut(one, "similarity", "facts")[0]["change"] for one in (narrow, trace))
    assert found.shape == whole.shape
    assert np.isnan(found[:, 0]).all()
    assert np.array_equal(found[:, 1:], whole[:, 1:], equal_nan=True)


def test_the_change_between_steps_needs_no_memory_for_layers_that_were_not_recorded():
    steps, layers = 200, 1_000
    arrays = empty_arrays() | {
        "similarity": np.zeros((steps * (steps + 1) // 2, 2, 1, 1), np.uint8),
        "similarity_step": np.arange(steps, dtype=np.int32),
        "recorded_layer": np.array([layers - 1], np.int32),
    }
    trace = SimpleNamespace(arrays=lambda: arrays, layers=layers)
    tracemalloc.start()
    try:
        assert changes(trace).shape == (2, layers, 1)
        assert tracemalloc.get_traced_memory()[1] < 1_000_000  # of 40 MB in all layers
    finally:
        tracemalloc.stop()


def test_the_bound_needs_every_step_and_both_quantities(trace, narrow):
    assert cut(trace, "error", "facts")[1]["bounded"]
    assert not cut(narrow, "error", "facts")[1]["bounded"]
    with pytest.raises(SliceError, match="in every step"):
        cut(narrow, "error", "bound", layer=1)
    kept = {"layers": [1], "quantities": [2, 4], "every": 1, "positions": slice(None)}
    enough = narrowed(trace, **kept)
    found, whole = (cut(one, "error", "bound", layer=1)[0] for one in (enough, trace))
    assert np.array_equal(found["proxy"], whole["proxy"])
    assert np.isnan(cut(enough, "error", "bound", layer=0)[0]["proxy"]).all()


def test_a_scatter_of_a_narrowed_run_samples_recorded_steps(trace, narrow, monkeypatch):
    asked = {"x": "q0", "y": "v"}
    whole, facts = cut(narrow, "scatter", **asked)
    assert facts == {"every": 3}
    assert VIEWS["scatter"](narrow)["every"] == 3
    assert whole["rows"][0] == 0 < whole["rows"][1]
    monkeypatch.setattr(drift, "MAX_ROWS", narrow.arrays()["drift"][:, :, 0].size // 2)
    some, facts = cut(narrow, "scatter", **asked)
    assert facts == {"every": 6}
    assert 0 < some["rows"][-1] < whole["rows"][-1]
    one = cut(narrow, "scatter", **asked, layer=2)[0]
    assert (one["rows"], one["counts"].sum()) == (whole["rows"][2], whole["rows"][2])


def test_a_pair_is_compared_although_a_third_quantity_was_not_recorded(trace):
    only = narrowed(trace, [0], [V, QUANTITIES.index("attn")], 1, slice(None))
    assert cut(only, "scatter", x="v", y="attn", layer=0)[0]["rows"] > 0
    assert cut(only, "scatter", x="v", y="ffn", layer=0)[0]["rows"] == 0


@pytest.mark.parametrize(
    ("view", "part", "fields", "names"), [row for row in WHOLE if row[1] != "bound"]
)
def test_a_slice_of_a_narrowed_run_is_a_part_of_the_views_document(
    narrow, view, part, fields, names
):
    check_part(narrow, view, part, fields, names)


def test_a_slice_of_a_narrowed_run_copies_only_its_own_part():
    wide = narrowed(make_big_trace(8, 200, 512, 128), [0, *range(2, 8)], [0, 1, 2], 1, slice(None))
    held = wide.arrays()["drift"].nbytes
    for fields in ({"view": "drift", "quantity": "v", "layer": 5},
                   {"view": "drift", "part": "counts", "quantity": "v"},
                   {"view": "token", "position": 7}):  # fmt: skip
        tracemalloc.start()
        cut(wide, **fields)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert peak < held / 3
