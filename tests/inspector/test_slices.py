"""Slices: each is the part of the whole arrays that was asked for, reduced as its header says."""

import tracemalloc

import numpy as np
import pytest

from engine.core.drift_codes import NOT_EVALUATED, decode, encode
from engine.core.events import QUANTITIES, SITES
from engine.trace.trace import Trace
from inspector.slices import reduction, registry, scatter
from inspector.slices.fields import Fields, SliceError
from inspector.slices.message import Cut, decoded, encoded
from inspector.views.queries import NEVER
from inspector.views.registry import VIEWS
from tests.inspector.unpacked import unpacked
from tests.support.big_trace import make_big_trace, narrowed

LAYERS, STEPS, POSITIONS, PROMPT = 3, 40, 117, 30
V = QUANTITIES.index("v")


@pytest.fixture(scope="module")
def trace():
    return make_big_trace(LAYERS, STEPS, POSITIONS, PROMPT)


@pytest.fixture(scope="module")
def held(trace):
    return trace.arrays()


def cut(trace, view, part="", **fields):
    """The arrays and facts of a slice."""
    given = {"view": view, **({"part": part} if part else {})}
    given |= {name: str(value) for name, value in fields.items()}
    return decoded(registry.cut(trace, Fields(given)))


def cells(trace, view, **fields):
    return cut(trace, view, "map", **fields)[0]["cells"]


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


WHOLE = [  # view, part, fields, name in the slice: name in the view's document and index there
    ("frame", "", {}, {"revealed": ("revealed", ()), "ids": ("ids", ()), "kinds": ("kinds", ())}),
    ("why", "", {}, {"due": ("due", ())}),
    ("schedule", "kinds", {}, {name: (name, ()) for name in ("planned", "done", "differs")}),
    ("schedule", "kinds", {}, {"running": ("running", ())}),
    ("schedule", "portion", {}, {"portion": ("portion", ())}),
    ("queries", "facts", {}, {"edges": ("edges", ())}),
    ("queries", "histogram", {"layer": 2}, {"counts": ("counts", 2)}),
    ("queries", "reuse", {}, {"reuse": ("reuse", ())}),
    ("scatter", "", {"x": "v", "y": "ffn", "layer": 1}, {"counts": ("counts", (1, 1))}),
    ("scatter", "", {"x": "v", "y": "ffn", "layer": 1}, {"stats": ("stats", (1, 1))}),
    ("scatter", "", {"x": "q0", "y": "v"}, {"stats": ("stats", 3), "rows": ("rows", 3)}),
    ("similarity", "facts", {}, {"steps": ("steps", ()), "groups": ("groups", ())}),
    ("error", "facts", {}, {name: (name, ()) for name in ("step", "count", "mean_tv", "flips")}),
    ("error", "mean", {"quantity": "v"}, {"mean": ("mean", (..., 1))}),
    ("error", "recall", {"quantity": "ffn"}, {"recall": ("recall", (..., 3))}),
    ("error", "recall", {"quantity": "ffn"}, {"chance": ("chance", (..., 3))}),
    ("error", "bound", {"layer": 1}, {"proxy": ("proxy", (slice(None), 1))}),
    ("error", "bound", {"layer": 1}, {"true": ("true", (slice(None), 1))}),
    ("guider", "facts", {}, {name: (name, ()) for name in ("drafted", "mean", "survival")}),
    ("guider", "map", {}, {"cells": ("cells", ())}),
]  # fmt: skip


@pytest.mark.parametrize(("view", "part", "fields", "names"), WHOLE)
def test_a_slice_is_a_part_of_the_views_document(trace, view, part, fields, names):
    check_part(trace, view, part, fields, names)


def check_part(trace, view, part, fields, names):
    found, whole = cut(trace, view, part, **fields)[0], VIEWS[view](trace)
    for name, (source, index) in names.items():
        want = unpacked(whole[source])[index]
        assert found[name].dtype == want.dtype
        assert np.array_equal(found[name], want, equal_nan=want.dtype.kind == "f")


@pytest.mark.parametrize(
    ("view", "part"), [("frame", ""), ("why", ""), ("queries", "facts"), ("guider", "facts")]
)
def test_facts_are_those_of_the_views_document(trace, view, part):
    facts, whole = cut(trace, view, part)[1], VIEWS[view](trace)
    assert facts
    assert facts == {name: whole[name] for name in facts}


def test_all_layers_of_a_scatter_count_some_steps_of_many(trace, monkeypatch):
    whole, facts = cut(trace, "scatter", x="v", y="attn")
    assert facts == {"every": 1}
    counts = unpacked(VIEWS["scatter"](trace)["counts"])[0]
    assert np.array_equal(whole["counts"], counts.sum(0))
    monkeypatch.setattr(scatter, "MAX_ROWS", LAYERS * STEPS * POSITIONS // 4)
    some, facts = cut(trace, "scatter", x="v", y="attn")
    assert facts == {"every": 4}
    assert 0 < some["rows"][-1] < whole["rows"][-1]


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
    assert np.allclose(change, decode(codes[pairs]).mean(0), equal_nan=True)


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
    assert facts == {"step_from": 2, "step_to": 30}
    own = (held["draft_step"] >= 2) & (held["draft_step"] < 30)
    assert np.array_equal(found["draft_p_g"], held["draft_p_g"][own])
    shown = cut(trace, "guider", "map")[0]["cells"]
    want = shown[held["draft_step"][own], held["draft_position"][own] - PROMPT]
    assert np.array_equal(found["verdict"], want)


KEPT = {"layers": [1, 2], "quantities": [0, 1, 4], "every": 3, "positions": slice(20, 90)}


@pytest.fixture(scope="module")
def narrow(trace):
    return narrowed(trace, **KEPT)


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
    assert whole["rows"][0] == 0 < whole["rows"][1]
    monkeypatch.setattr(scatter, "MAX_ROWS", narrow.arrays()["drift"][:, :, 0].size // 2)
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


def blocks(array, by):
    """Each cell's values, cell by cell."""
    for top in range(0, array.shape[0], by[0]):
        for left in range(0, array.shape[1], by[1]):
            yield array[top : top + by[0], left : left + by[1]]


def sparse_codes():
    """Codes of which most are missing, so that some cells have none."""
    rng = np.random.default_rng(3)
    codes = rng.integers(0, 255, (23, 150), np.uint8)
    return np.where(rng.random(codes.shape) < 0.8, np.uint8(NOT_EVALUATED), codes)


@pytest.mark.parametrize("by", [(1, 1), (2, 3), (5, 70), (23, 150), (40, 200)])
def test_a_reduced_cell_has_the_largest_known_code(by):
    codes = sparse_codes()
    found = reduction.by_maximum(codes, by)
    want = [
        known.max() if (known := cell[cell != NOT_EVALUATED]).size else NOT_EVALUATED
        for cell in blocks(codes, by)
    ]
    assert found.ravel().tolist() == want
    assert found.dtype == np.uint8


@pytest.mark.parametrize("by", [(1, 1), (2, 3), (5, 70), (40, 200)])
def test_a_reduced_cell_has_the_mean_of_the_known_drifts(by):
    codes = sparse_codes()
    found = reduction.by_mean(codes, by)
    means = [decode(known).mean() if (known := cell[cell != NOT_EVALUATED]).size else np.nan
             for cell in blocks(codes, by)]  # fmt: skip
    assert found.ravel().tolist() == encode(means).tolist()


@pytest.mark.parametrize("by", [(1, 1), (2, 3), (5, 70)])
def test_a_reduced_cell_has_the_share_of_its_flags(by):
    flags = np.random.default_rng(4).random((23, 150)) < 0.3
    found = reduction.by_share(flags, by)
    assert found.ravel().tolist() == [round(254 * cell.mean()) for cell in blocks(flags, by)]


def test_no_data_of_two_bytes_stays_only_where_all_is():
    ages = np.array([[NEVER, 3, NEVER, NEVER]], np.uint16)
    assert reduction.by_maximum(ages, (1, 2)).tolist() == [[3, NEVER]]


@pytest.mark.parametrize("shape", [(1024, 3072), (4096, 16384), (3, 10_000_000), (0, 5)])
def test_cells_fit_into_a_message_without_asking(shape):
    rows, columns = reduction.factors(shape, (4096, 4096), 2)
    assert -(-shape[0] // rows) * -(-shape[1] // columns) * 2 <= reduction.MAX_BYTES


def test_a_window_is_cut_before_it_is_reduced(trace, held):
    asked = {"step_from": 5, "step_to": 25, "position_from": 11, "position_to": 91}
    found, facts = cut(trace, "drift", "map", quantity="v", layer=0, width=20, height=7, **asked)
    window = held["drift"][5:25, 0, V, 11:91]
    assert np.array_equal(found["cells"], reduction.by_maximum(window, (3, 4)))
    assert facts["rows"] == {"name": "steps", "from": 5, "to": 25, "factor": 3}
    assert facts["columns"] == {"name": "positions", "from": 11, "to": 91, "factor": 4}
    assert (facts["by"], facts["no_data"]) == ("maximum", NOT_EVALUATED)


def test_a_map_that_fits_the_screen_is_not_reduced(trace):
    facts = cut(trace, "drift", quantity="v", layer=0, width=POSITIONS, height=STEPS)[1]
    assert facts["by"] == "none"
    assert facts["rows"]["factor"] == facts["columns"]["factor"] == 1


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


def test_a_snapshot_keeps_what_it_had(events):
    grown = Trace()
    mine = [event for lane, event in events if lane == "a"]
    for event in mine[:5]:
        grown.append(event)
    held = grown.snapshot()
    steps = held.steps
    for event in mine[5:]:
        grown.append(event)
    assert (held.steps, len(held.arrays()["rows"])) == (steps, steps)
    assert grown.steps > steps
