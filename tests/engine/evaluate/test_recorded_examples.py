"""The shipped recordings: of this checkpoint, of every method, and reproducible."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from engine import catalog
from engine.core.events import RunFinished
from engine.evaluate.record_examples import PLAIN, collect_traces, method_specs, record_runs
from engine.models.loading.checkpoint import Checkpoint
from engine.models.loading.families import embedded_models
from engine.serve.session import Session
from engine.trace.trace import Trace

ASSETS = Path(__file__).parents[3] / "assets"
FOLDER = ASSETS / "examples"
TIMES = {"forward_ms", "decide_ms", "guided_ms"}
METHODS = catalog.policies() | catalog.unmaskers()
DOCUMENTED = [name for name, cls in METHODS.items() if catalog.method_doc(cls).description]
BASE = ("none", "quota")


@pytest.fixture(scope="module")
def shipped():
    return Session(embedded_models(ASSETS))


def different_arrays(one, other):
    """The names of the arrays that differ."""
    a, b = one.arrays(), other.arrays()
    return {n for n in a if a[n].shape != b[n].shape or a[n].tobytes() != b[n].tobytes()}


@pytest.mark.parametrize("name", [PLAIN, "dual", "spa_cache", "threshold", "guided"])
def test_a_repeated_recording_differs_only_in_its_times(session, name):
    spec = replace(
        method_specs(session)[name], gen_length=16, block_length=8, steps=16, probe_steps=2
    )
    one, again = (record_runs(session, {name: spec})[name] for _ in range(2))
    assert different_arrays(one, again) <= TIMES
    other = record_runs(session, {name: replace(spec, temperature=1.0)})[name]
    assert different_arrays(one, other) - TIMES


def test_a_failed_run_raises():
    failed = RunFinished("failed", np.zeros((1, 0), np.int32), message="out of memory")
    with pytest.raises(RuntimeError, match="out of memory"):
        collect_traces([("a", failed)])


@pytest.mark.parametrize("method", DOCUMENTED)
def test_every_documented_method_has_its_recorded_run(shipped, method):
    name = PLAIN if method in BASE else method
    trace = Trace.load(FOLDER / "methods" / f"{name}.npz")
    assert trace.meta["spec"] == json.loads(json.dumps(method_specs(shipped)[name].to_dict()))
    assert method in (trace.meta["spec"]["cache"], trace.meta["spec"]["unmasker"])
    digest = Checkpoint(ASSETS / "models" / trace.meta["spec"]["model"]).digest()
    assert trace.meta["environment"]["checkpoint"] == digest
    assert trace.meta["reason"] == "done"
    arrays = trace.arrays()
    assert len(arrays["drift"]) == trace.steps
    assert 0 < len(arrays["probe_step"]) <= trace.meta["spec"]["probe_steps"]


def test_every_recorded_run_is_of_an_existing_method(shipped):
    found = {path.stem for path in (FOLDER / "methods").glob("*.npz")}
    assert found <= set(method_specs(shipped))


@pytest.mark.parametrize("lane", ["a", "b"])
def test_the_recorded_default_race_equals_the_timed_one(lane):
    timed, recorded = (Trace.load(FOLDER / f"{lane}{end}.npz") for end in ("", "-recorded"))
    assert recorded.meta["spec"] == timed.meta["spec"] | {"record": "probe"}
    assert np.array_equal(recorded.step_map(), timed.step_map())
    assert np.array_equal(recorded.canvas_at(timed.steps), timed.canvas_at(timed.steps))


def test_the_recorded_runs_are_small():
    sizes = [path.stat().st_size for path in FOLDER.rglob("*.npz")]
    assert max(sizes) < 2_000_000
    assert sum(sizes) < 6_000_000
