"""Synthetic runs: valid traces of the size asked for, with the drifts that they promise."""

import numpy as np
import pytest

from engine import __main__ as command_line
from engine.core.drift_codes import NOT_EVALUATED, decode
from engine.core.events import QUANTITIES, SITES
from engine.trace.synthetic import PROMPT_INTERVAL, synthetic_events, synthetic_spec
from engine.trace.trace import Trace
from inspector.views import registry
from tests.support.traces import trace_of

LAYERS, STEPS, POSITIONS = 4, 64, 160


def make(probe=False, seed=0, layers=LAYERS, steps=STEPS, positions=POSITIONS):
    return trace_of(synthetic_events(synthetic_spec(steps, probe, seed), layers, positions))


@pytest.fixture(scope="module")
def trace():
    return make(probe=True)


def test_a_synthetic_trace_passes_the_checks_of_a_file(trace):
    loaded = Trace.from_bytes(trace.to_bytes()).arrays()
    assert loaded["drift"].shape == (STEPS, LAYERS, len(QUANTITIES), POSITIONS)
    assert len(loaded["probe_step"]) == 8
    assert trace.step_map().max() == STEPS - 1


@pytest.mark.parametrize("sizes", [(1, 1, 2), (2, 7, 9), (3, 33, 34)])
def test_small_and_odd_sizes(sizes):
    small = make(True, 0, *sizes)
    assert Trace.from_bytes(small.to_bytes()).steps == sizes[1]


def test_the_seed_decides_everything(trace):
    again, other = make(probe=True), make(probe=True, seed=1)
    assert again.to_json() == trace.to_json()
    assert not np.array_equal(other.arrays()["drift"], trace.arrays()["drift"])


def test_rows_that_were_reused_have_no_drift(trace):
    known = trace.arrays()["drift"][1:, :, : len(SITES)] != NOT_EVALUATED
    assert np.array_equal(known, trace.recompute_map()[1:])
    assert 0.2 < known.mean() < 0.8


def test_the_plan_was_kept(trace):
    assert np.array_equal(trace.recomputed_kinds(), trace.arrays()["planned"])


def test_drifts_grow_with_the_layer_and_near_new_tokens(trace):
    arrays = trace.arrays()
    drift = decode(arrays["drift"][PROMPT_INTERVAL, :, QUANTITIES.index("v")])
    assert np.median(drift[-1]) > 2 * np.median(drift[0])
    near = np.abs(np.arange(POSITIONS) - arrays["commit_position"][PROMPT_INTERVAL - 1]) < 3
    assert np.median(drift[:, near]) > 2 * np.median(drift[:, ~near])


def test_every_view_draws_it(trace):
    missing = {name for name in registry.VIEWS if "missing" in registry.draw(trace, name)}
    assert missing == {"time", "experts"}  # a recorded run has no times, and its model no experts


@pytest.mark.parametrize(
    ("sizes", "field"), [((0, 8, 9), "layers"), ((1, 0, 9), "steps"), ((1, 8, 8), "positions")]
)
def test_sizes_that_do_not_fit_are_refused_by_name(sizes, field):
    with pytest.raises(ValueError, match=f"^{field}: "):
        make(False, 0, *sizes)


def test_the_command_writes_a_file(tmp_path, capsys):
    path = tmp_path / "run.npz"
    sizes = ["--layers", "2", "--steps", "8", "--positions", "20", "--seed", "3"]
    command_line.main(["synthetic", *sizes, "--out", str(path)])
    assert f"{path}: 0.0 MB of arrays" in capsys.readouterr().out
    assert Trace.load(path).arrays()["drift"].shape == (8, 2, len(QUANTITIES), 20)
    with pytest.raises(SystemExit, match="error: positions: 8 is outside 9"):
        command_line.main(["synthetic", *sizes[:4], "--positions", "8", "--out", str(path)])
