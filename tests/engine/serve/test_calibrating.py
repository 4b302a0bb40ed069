"""Drifts that a cache needs and no file has are measured before a run, seen and stopped."""

from dataclasses import replace

import numpy as np
import pytest

from engine.config.spec import RunSpec
from engine.core.control import Control
from engine.core.events import RunFinished, RunStarted, Waiting
from engine.core.progress import run_to_end
from engine.serve import drift_meter
from engine.serve.loaded_model import measure_needed_drifts, policy_context_of
from engine.serve.model_pool import ModelPool
from tests.engine.serve.test_race import BASE

SPEC = RunSpec(**BASE | {"cache": "dual+dare_kv"})


@pytest.fixture(autouse=True)
def unmeasured(monkeypatch, tmp_path):
    """No drifts are kept, and two problems are decoded to measure some."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(drift_meter, "PROBLEMS", 2)


def states(events):
    return [event.state for event in events if isinstance(event, Waiting)]


def test_a_run_measures_the_drifts_once_with_progress(session):
    first = list(session.run(SPEC))
    waits = [event for event in first if getattr(event, "state", "") == "calibrating"]
    assert {(one.unit, one.what) for one in waits} == {("forwards", "micro")}
    assert {one.total for one in waits} == {2 * drift_meter.ANSWER}
    assert [one.done for one in waits] == sorted({one.done for one in waits})
    assert waits[-1].done <= waits[-1].total
    assert states(first)[-1] == "warmup"
    assert states(session.run(SPEC)) == ["warmup"]
    assert states(session.run(replace(SPEC, cache="dual"))) == ["warmup"]


def test_a_stop_ends_the_measurement(session):
    control, events = Control(), []
    for event in session.run(SPEC, control):
        events.append(event)
        if getattr(event, "state", "") == "calibrating":
            control.stop()
    assert states(events)[-1] == "calibrating"
    assert states(events).count("calibrating") == 1
    assert not any(isinstance(event, RunStarted) for event in events)
    assert isinstance(events[-1], RunFinished)
    assert events[-1].reason == "stopped"
    assert "calibrating" in states(session.run(SPEC)), "nothing is kept of a part"


def test_the_drifts_are_those_that_a_job_measures(checkpoint):
    seen, own = (ModelPool({"micro": checkpoint}).load(SPEC) for _ in range(2))
    assert run_to_end(measure_needed_drifts(seen, SPEC)) == 1
    assert run_to_end(measure_needed_drifts(seen, SPEC)) == 0
    measured = policy_context_of(own, "micro").measure("dual", "q0")
    assert list(seen.profiles) == [("dual", "q0")]
    assert np.array_equal(seen.profiles["dual", "q0"].counts, measured.counts)
