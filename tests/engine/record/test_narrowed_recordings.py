"""A narrowed recording equals the full one where it was recorded, and is blank elsewhere."""

import numpy as np
import pytest

from engine.core.drift_codes import NOT_EVALUATED
from engine.record import make_recorder
from engine.trace.trace import Trace
from inspector.views import registry
from tests.engine.trace.test_trace import ended, started
from tests.inspector.unpacked import unpacked
from tests.support.micro import make_spec, model_of, run
from tests.support.traces import trace_of

NARROW = {
    "layers": {"record_layers": "1,3"},
    "quantities": {"record_quantities": "v,attn"},
    "steps": {"record_every": 3},
    "positions": {"record_positions": "5-9"},
    "all four": {
        "record_layers": "2-3", "record_quantities": "k,v,q0", "record_every": 2,
        "record_positions": "answer",
    },
}  # fmt: skip


def recorded(cache="dual", **fields):
    """The trace of a run recorded at level `probe`."""
    spec = make_spec(cache=cache, unmasker="threshold", record="probe", probe_steps=4, **fields)
    recorder = make_recorder(spec)
    result = run(model_of("gqa"), spec, recorder=recorder)
    return trace_of((started(spec), *result.events, ended(result, recorder)))


@pytest.fixture(scope="module")
def full():
    return recorded()


@pytest.fixture(scope="module", params=NARROW)
def narrow(request):
    return recorded(**NARROW[request.param])


def kept(trace, name):
    """Where a trace holds codes of an array, bool of the full shape."""
    arrays, shape = trace.arrays(), trace.cells(name).shape
    axes = [np.arange(size) for size in shape]
    axes[2 if name == "similarity" else 1] = arrays["recorded_layer"]
    if name != "similarity":
        axes[2] = [i for i in arrays["recorded_quantity"] if i < shape[2]]
        axes[3] = arrays["recorded_position"]
    if name == "drift":
        axes[0] = arrays["drift_step"]
    found = np.zeros(shape, bool)
    found[np.ix_(*axes)] = True
    return found


@pytest.mark.parametrize("name", ["drift", "probe_error", "probe_moved"])
def test_recorded_cells_are_those_of_the_full_recording(full, narrow, name):
    whole, part, here = full.cells(name), narrow.cells(name), kept(narrow, name)
    assert part.shape == whole.shape
    assert np.array_equal(part[here], whole[here])
    assert (part[~here] == NOT_EVALUATED).all()
    assert narrow.arrays()[name].size == here.sum() <= whole.size


def test_similarity_is_of_the_recorded_layers_and_needs_k_and_v(full, narrow):
    if not {0, 1} <= set(narrow.arrays()["recorded_quantity"].tolist()):
        assert not narrow.arrays()["similarity"].size
        return
    here = kept(narrow, "similarity")
    assert np.array_equal(narrow.cells("similarity")[here], full.cells("similarity")[here])
    assert (narrow.cells("similarity")[~here] == NOT_EVALUATED).all()


def test_everything_else_is_recorded_as_before(full, narrow):
    one, other = full.arrays(), narrow.arrays()
    for name in ("plan", "planned", "candidate_id", "probe_step", "probe_top", "commit_id"):
        assert np.array_equal(one[name], other[name])


def test_a_file_keeps_the_narrowing(narrow):
    again = Trace.from_bytes(narrow.to_bytes())
    assert np.array_equal(again.cells("drift"), narrow.cells("drift"))


@pytest.mark.parametrize("name", ["drift", "probe_error", "similarity"])
def test_a_part_of_the_cells_is_that_part(full, narrow, name):
    steps, layers = slice(1, 4), slice(1, 2)
    for trace in (full, narrow):
        whole = trace.cells(name)
        part = whole[steps, :, layers] if name == "similarity" else whole[steps, layers]
        assert np.array_equal(trace.cells(name, steps, layers), part)


def test_a_full_recording_is_not_copied(full):
    assert np.shares_memory(full.cells("drift"), full.arrays()["drift"])


def test_views_are_blank_where_nothing_was_recorded_and_never_shifted(full, narrow):
    drawn, whole = (unpacked(registry.draw(t, "drift")["drift"]) for t in (narrow, full))
    here = kept(narrow, "drift")
    assert np.array_equal(drawn[here], whole[here])
    assert (drawn[~here] == NOT_EVALUATED).all()
    for name in set(registry.VIEWS) - {"time", "similarity", "guider", "experts"}:
        assert "missing" not in registry.draw(narrow, name)


def test_sums_over_all_steps_are_left_out_where_steps_are_missing():
    for every, known in ((1, True), (2, False)):
        trace = recorded(cache="dual+dare_o", record_every=every)
        assert (registry.draw(trace, "error")["proxy"] is not None) is known
