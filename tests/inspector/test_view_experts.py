"""Expert changes: the view, its slices and its figure against the arrays of a recorded run."""

import io
from dataclasses import replace

import numpy as np
import pytest

from engine.batch.aggregates import Aggregates
from engine.config.spec import RunSpec
from engine.core.drift_codes import NOT_EVALUATED
from engine.serve.session import Session
from engine.trace.schema import MAX_POSITIONS
from engine.trace.trace import Trace
from inspector.figures import experts as experts_figure
from inspector.files.column_notes import STEPS
from inspector.files.tables import steps_table
from inspector.slices.fields import SliceError
from inspector.views import experts
from inspector.views.frame import frame_facts
from inspector.views.registry import draw
from tests.inspector.figure_traces import end_texts, example
from tests.inspector.slice_parts import cells, cut, whole_trace
from tests.inspector.unpacked import unpacked
from tests.support.looking import expert_run, recorded
from tests.support.micro import write_checkpoint


@pytest.fixture(scope="module")
def trace(tmp_path_factory):
    return expert_run(tmp_path_factory.mktemp("models") / "micro")


def test_the_document_has_the_changes_of_every_cell(trace):
    found, arrays = draw(trace, "experts"), trace.arrays()
    assert (found["active"], found["count"]) == (3, 8)
    assert np.array_equal(unpacked(found["changes"]), arrays["expert_changes"])
    assert np.array_equal(unpacked(found["probed"]), arrays["probe_expert_changes"])
    assert np.array_equal(unpacked(found["probe_step"]), arrays["probe_step"])
    known = arrays["expert_changes"] != NOT_EVALUATED
    assert known.any()
    assert arrays["expert_changes"][known].max() > 0
    assert "experts" not in frame_facts(trace)["lacks"]


def test_maps_are_those_of_the_array(trace):
    held = trace.arrays()
    assert np.array_equal(cells(trace, "experts", layer=1), held["expert_changes"][:, 1])
    assert np.array_equal(cells(trace, "experts", step=5), held["expert_changes"][5])
    probed = cut(trace, "experts", "probed", probe=2)[0]["cells"]
    assert np.array_equal(probed, held["probe_expert_changes"][2])


@pytest.mark.parametrize(("low", "high"), [(None, None), (9, None), (9, 13)])
def test_counts_are_those_of_the_rows(trace, low, high):
    given = {"position_from": low, "position_to": high}
    fields = {name: value for name, value in given.items() if value is not None}
    found, _ = cut(trace, "experts", "counts", **fields)
    for name, array in (("rows", "expert_changes"), ("probed", "probe_expert_changes")):
        held = trace.arrays()[array][..., low:high]
        assert found[name].shape == (*held.shape[:2], 4)
        for changes in range(4):
            assert np.array_equal(found[name][..., changes], (held == changes).sum(-1))


def test_counts_that_no_message_holds_are_refused_before_they_are_made(trace, monkeypatch):
    monkeypatch.setattr("inspector.slices.tables.MOST_COUNTS", 10)
    monkeypatch.setattr(experts, "rows_by_changes", None)
    with pytest.raises(SliceError, match="too many steps, layers and experts") as caught:
        cut(trace, "experts", "counts")
    assert caught.value.status == 404


def test_facts_name_the_experts_and_the_probes(trace):
    arrays, facts = cut(trace, "experts")
    assert (facts["active"], facts["count"]) == (3, 8)
    assert np.array_equal(arrays["probe_step"], trace.arrays()["probe_step"])


def test_a_dense_model_and_an_unrecorded_run_say_why_there_is_nothing():
    dense = whole_trace()
    assert "no experts" in draw(dense, "experts")["missing"]
    assert "experts" in frame_facts(dense)["lacks"]
    with pytest.raises(SliceError, match="no experts") as caught:
        cut(dense, "experts", "counts")
    assert caught.value.status == 404


def renamed(trace, **model):
    found = Trace.from_bytes(trace.to_bytes())
    found.meta["model"] |= model
    return found


@pytest.mark.parametrize("given", [None, 3, [], {}, {"active": "x"}, {"active": 10**9}])
def test_sizes_of_a_hostile_trace_are_not_trusted(trace, given):
    assert experts.active_experts(renamed(trace, experts=given)) == 0
    assert "no experts" in draw(renamed(trace, experts=given), "experts")["missing"]


def test_a_run_without_recorded_experts_names_the_remedy(trace):
    empty = Trace.of_arrays(
        trace.meta,
        trace.arrays()
        | {
            name: np.zeros((0, 0, 0), np.uint8)
            for name in ("expert_changes", "probe_expert_changes")
        },
    )
    assert "press Record" in draw(empty, "experts")["missing"]


def test_a_recording_without_probes_has_no_probed_rows(tmp_path):
    folder = write_checkpoint(tmp_path / "micro", kind="llada_moe")
    spec = RunSpec(model="micro", prompt="1", gen_length=8, block_length=8, steps=8)
    found = recorded(Session({"micro": folder}), replace(spec, record="layers"))
    arrays, _ = cut(found, "experts", "counts")
    assert arrays["probed"].shape == (0, 2, 4)
    assert len(cut(found, "experts")[0]["probe_step"]) == 0


def test_the_table_of_steps_has_the_changes(trace):
    head, *rows = [line.split(",") for line in steps_table(trace).splitlines()]
    assert set(head) <= set(STEPS)
    held = trace.arrays()["expert_changes"]
    for step, row in enumerate(rows):
        known = held[step][held[step] != NOT_EVALUATED]
        found = dict(zip(head, row, strict=True))
        assert int(found["expert_rows"]) == len(known)
        if len(known):
            assert float(found["expert_changed"]) == pytest.approx((known > 0).mean())
            assert float(found["expert_changes"]) == pytest.approx(known.mean())
        else:
            assert found["expert_changed"] == ""
    assert "expert_rows" not in steps_table(whole_trace()).splitlines()[0]


def test_aggregates_have_the_mean_of_each_layer_and_older_files_none(trace):
    found = Aggregates()
    found.add("a", trace)
    held = trace.arrays()["expert_changes"]
    means = [held[:, i][held[:, i] != NOT_EVALUATED].mean() for i in range(2)]
    assert found.to_dict()["experts"]["mean"] == pytest.approx(means, rel=1e-5)
    again = Aggregates.from_bytes(found.to_bytes())
    assert again.to_dict() == found.to_dict()
    with np.load(io.BytesIO(found.to_bytes())) as file:
        older = {name: file[name] for name in file.files if not name.startswith("experts_")}
    buffer = io.BytesIO()
    np.savez_compressed(buffer, **older)
    opened = Aggregates.from_bytes(buffer.getvalue()).to_dict()
    assert opened["experts"]["mean"] == [None, None]
    assert opened["drift"] == found.to_dict()["drift"]


def test_the_figure_has_the_counts_of_the_array(trace):
    figure = experts_figure.figure(trace, least=2)
    held = trace.arrays()["expert_changes"].astype(int)
    known = held != NOT_EVALUATED
    share = np.divide((known & (held >= 2)).sum(-1), known.sum(-1), where=known.any(-1),
                      out=np.full(held.shape[:2], np.nan))  # fmt: skip
    assert np.array_equal(figure.data[0].z, share.T, equal_nan=True)
    total = np.where(known, held, 0).sum((0, 2)) / known.sum((0, 2))
    np.testing.assert_allclose(figure.data[1].x, total)
    assert end_texts(figure.data[0], MAX_POSITIONS) == ["0.01%", "99.99%"]
    assert "Plotly.newPlot" in figure.to_html(include_plotlyjs=False)
    for least in (0, 4, 1.5, "1"):
        with pytest.raises(ValueError, match=r"^least: .*choose 1 to 3"):
            experts_figure.figure(trace, least=least)


def test_a_dense_model_has_no_figure():
    with pytest.raises(ValueError, match="no experts"):
        experts_figure.figure(example("methods/plain"))
