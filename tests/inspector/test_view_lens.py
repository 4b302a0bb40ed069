"""The logit lens: its document, its slices and its figure, against the arrays of the trace."""

import numpy as np
import pytest

from engine.core.events import NOT_COMPUTED
from engine.core.files import ASSETS
from engine.trace.trace import Trace
from inspector.figures import lens as lens_figure
from inspector.slices import registry
from inspector.slices.fields import Fields, SliceError
from inspector.views.error import error_facts
from inspector.views.frame import frame_facts
from inspector.views.lens import lens, lens_facts
from tests.inspector.figure_traces import changed
from tests.inspector.unpacked import decoded, unpacked
from tests.support.big_trace import make_synthetic_trace

LAYERS, STEPS, POSITIONS, PROMPT = 4, 40, 70, 30


@pytest.fixture(scope="module")
def trace():
    return make_synthetic_trace(LAYERS, STEPS, POSITIONS)


def small_trace():
    """One probed step of three layers and four answer tokens, the last without a prediction."""
    found = make_synthetic_trace(3, 4, 10)
    arrays = dict(found.arrays())
    own = [[1, 5, 9, 4], [2, 5, 7, 4], [2, 5, 8, 0]]
    exact = [[1, 5, 9, 4], [2, 6, 7, 4], [2, 6, 9, 4]]
    probs = np.full((1, 2, 3, 4), 127, np.uint8)
    probs[0, 0, 2, 3] = NOT_COMPUTED
    arrays |= {
        "lens_position": np.arange(6, 10, dtype=np.int32),
        "lens_id": np.array([[own, exact]], np.int32),
        "lens_prob": probs,
        "lens_token_prob": probs,
        "probe_step": np.array([2], np.int32),
        "probe_row": np.zeros(4, np.int32),
        "probe_position": np.arange(6, 10, dtype=np.int32),
    }
    copy = Trace()
    copy.meta, copy._arrays, copy._pieces = found.meta, arrays, {1: b"<b>", 2: b" two", 5: b"\xff"}
    return copy


def cut(trace, part, **fields):
    """The arrays and facts of a slice."""
    given = {"view": "lens", "part": part}
    return decoded(registry.cut(trace, Fields(given | {k: str(v) for k, v in fields.items()})))


def test_the_layers_at_which_tokens_are_decided():
    found, facts = cut(small_trace(), "layers", probe=0)
    assert found["stays"].tolist() == [[1, 0, 2, -1], [1, 1, 2, 0]]
    assert found["turned"].tolist() == [-1, 1, 2, -1]
    assert found["final"].tolist() == [[2, 5, 8, -1], [2, 6, 9, 4]]
    assert facts["pieces"] == {"2": " two", "5": [255]}


def test_tokens_that_differ_are_counted_by_layer_where_both_passes_have_them():
    found, _ = cut(small_trace(), "facts")
    assert found["compared"].tolist() == [[4, 4, 3]]
    assert found["differing"].tolist() == [[0, 1, 2]]
    assert (found["predicted"].tolist(), found["flips"].tolist()) == ([3], [2])


@pytest.mark.parametrize("method", ["spa_cache", "d2_cache", "dual", "plain"])
def test_the_predictions_are_those_of_the_error_view(method):
    """Some caches compute the last layer of further rows, whose logits no step reads."""
    found = Trace.load(ASSETS / "examples" / "methods" / f"{method}.npz")
    facts, known = lens_facts(found), error_facts(found)
    assert facts["predicted"].tolist() == known["count"].tolist()
    assert facts["flips"].tolist() == known["flips"].tolist()


def test_a_pass_without_a_hidden_state_has_no_token():
    found, _ = cut(small_trace(), "ids", probe=0)
    assert found["ids"][0, :, 3].tolist() == [4, 4, -1]
    assert found["ids"][1, :, 3].tolist() == [4, 4, 4]


@pytest.mark.parametrize(("name", "side"), [("run", 0), ("exact", 1)])
@pytest.mark.parametrize(("of", "array"), [("best", "lens_prob"), ("token", "lens_token_prob")])
def test_a_map_is_that_of_the_array_at_its_canvas_positions(trace, name, side, of, array):
    found, facts = cut(trace, "map", probe=3, **{"pass": name, "of": of})
    assert found["cells"].shape == (LAYERS, POSITIONS)
    assert (found["cells"][:, :PROMPT] == NOT_COMPUTED).all()
    assert np.array_equal(found["cells"][:, PROMPT:], trace.arrays()[array][3, side])
    assert (facts["no_data"], facts["scale"]) == (NOT_COMPUTED, 254)


def test_a_window_of_a_map_is_reduced_to_the_largest_probability(trace):
    fields = {"probe": 2, "pass": "exact", "position_from": PROMPT, "width": 10, "height": 2}
    found, facts = cut(trace, "map", **fields)
    whole = trace.arrays()["lens_prob"][2, 1]
    assert found["cells"].shape == (2, 10)
    assert found["cells"][0, 0] == whole[:2, :4].max()
    assert facts["columns"] == {"name": "positions", "from": 30, "to": 70, "factor": 4}


def test_ids_are_those_of_a_window_of_tokens(trace):
    found, facts = cut(trace, "ids", probe=1, token_from=5, token_to=11)
    arrays = trace.arrays()
    computed = arrays["lens_prob"][1] != NOT_COMPUTED
    expected = np.where(computed, arrays["lens_id"][1], -1)[:, :, 5:11]
    assert (expected >= 0).any()
    assert np.array_equal(found["ids"], expected)
    assert set(facts["pieces"]) == set(map(str, np.unique(expected[expected >= 0])))
    assert (facts["token_from"], facts["token_to"]) == (5, 11)


def test_the_document_of_a_replay_file_holds_what_the_slices_do(trace):
    packed = lens(trace)
    document = {k: unpacked(v) for k, v in packed.items() if isinstance(v, dict) and "data" in v}
    for probe in range(len(document["step"])):
        layers, _ = cut(trace, "layers", probe=probe)
        assert np.array_equal(document["stays"][probe], layers["stays"])
        assert np.array_equal(document["turned"][probe], layers["turned"])
        assert np.array_equal(document["ids"][probe], cut(trace, "ids", probe=probe)[0]["ids"])
    for name, array in cut(trace, "facts")[0].items():
        assert np.array_equal(document[name], array)


@pytest.mark.parametrize(("fields", "field"), [
    ({"part": "map", "pass": "run"}, "probe"), ({"part": "map", "probe": 99}, "probe"),
    ({"part": "map", "probe": 0, "pass": "both"}, "pass"),
    ({"part": "map", "probe": 0, "pass": "run", "of": "worst"}, "of"),
    ({"part": "ids", "probe": 0, "token_to": 41}, "token_to"),
    ({"part": "layers", "probe": "-1"}, "probe"), ({"part": "facts", "probe": 0}, "probe"),
])  # fmt: skip
def test_wrong_parameters_are_named(trace, fields, field):
    with pytest.raises(SliceError) as found:
        cut(trace, **fields)
    assert (found.value.status, found.value.field) == (422, field)


def without(trace, *names):
    return changed(trace, **{name: trace.arrays()[name][:0] for name in names})


def test_a_run_without_a_lens_says_so_and_what_to_do(trace):
    bare = without(trace, "lens_id", "lens_prob", "lens_token_prob", "lens_position")
    assert "lens" in frame_facts(bare)["lacks"]
    assert "lens" not in frame_facts(trace)["lacks"]
    with pytest.raises(SliceError, match=r"earlier version.*Record and probe") as found:
        cut(bare, "facts")
    assert found.value.status == 404
    with pytest.raises(ValueError, match="not probed: press Record and probe"):
        lens(without(bare, "probe_step"))
    with pytest.raises(ValueError, match="earlier version"):
        lens_figure.figure(bare, probe=0)


@pytest.mark.parametrize("of_pass", ["run", "exact"])
def test_the_figure_has_the_probabilities_tokens_and_dots_of_the_trace(of_pass):
    side = ["run", "exact"].index(of_pass)
    trace = small_trace()
    heat, dots = lens_figure.figure(trace, probe=0, of_pass=of_pass).data
    assert np.isnan(heat.z).sum() == 1 - side
    assert heat.z[0][0] == pytest.approx(0.5)
    assert heat.text[0][0] == "“&lt;b&gt;”"
    assert heat.text[1][1] == ("“\\xff”" if side == 0 else "id 6")
    assert list(dots.x) == [[1, 2, 3], [1, 2, 3, 4]][side]
    assert list(dots.y) == [[2, 1, 3], [2, 2, 3, 1]][side]


@pytest.mark.parametrize(
    ("wrong", "message"),
    [({"probe": 1}, "^probe"), ({"of_pass": "a"}, "^of_pass"), ({"of": "b"}, "^of: ")],
)
def test_the_figure_names_a_wrong_parameter(wrong, message):
    with pytest.raises(ValueError, match=message):
        lens_figure.figure(small_trace(), **({"probe": 0} | wrong))


def test_slices_of_an_8b_model_are_small():
    """32 layers and 1,024 answer tokens, at two probes."""
    rng = np.random.default_rng(0)
    found, shape = small_trace(), (2, 2, 32, 1024)
    arrays = dict(found.arrays()) | {"canvas": np.zeros(3072, np.int32)}
    arrays |= {"lens_position": np.arange(2048, 3072, dtype=np.int32)}
    arrays |= {"lens_id": rng.integers(0, 500, shape, np.int32)}
    arrays |= {n: rng.integers(0, 255, shape, np.uint8) for n in ("lens_prob", "lens_token_prob")}
    arrays["probe_step"] = np.array([0, 3], np.int32)
    found._arrays = arrays
    for part, fields in (
        ("facts", {}), ("map", {"probe": 1, "pass": "run"}), ("ids", {"probe": 1}),
        ("layers", {"probe": 1}),
    ):  # fmt: skip
        given = {"view": "lens", "part": part} | {k: str(v) for k, v in fields.items()}
        assert len(registry.cut(found, Fields(given))) < 350_000
