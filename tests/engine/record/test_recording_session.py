"""Recording levels in a session: recorded runs equal timed ones token by token."""

import time

import numpy as np
import pytest

from engine.config.spec import RunSpec
from engine.core.control import Control
from engine.core.events import RunFinished, RunStarted, StepEvent
from engine.record.layer_recorder import LayerRecorder
from tests.engine.serve.test_race import BASE
from tests.support.micro import TWO_BLOCKS
from tests.support.traces import trace_of

CACHES = ["none", "dual", "dllm_cache", "spa_cache", "freecache+dare_kv", "d2_cache"]


def traced(session, **changes):
    trace = trace_of(session.run(RunSpec(**BASE | {"temperature": 0.7} | changes)))
    assert trace.meta["reason"] == "done", trace.meta["message"]
    return trace


def tokens(trace):
    arrays = trace.arrays()
    names = ("commit_step", "commit_position", "commit_id", "commit_confidence", "kind", "rows")
    return [arrays[name].tolist() for name in names]


@pytest.mark.parametrize("cache", CACHES)
def test_a_recorded_run_equals_the_timed_one_token_by_token(session, cache):
    changes = {"cache": cache, **TWO_BLOCKS}
    timed = tokens(traced(session, **changes))
    for level in ("steps", "layers", "probe"):
        assert tokens(traced(session, **changes, record=level)) == timed
    assert tokens(traced(session, **changes, seed=8)) != timed


@pytest.mark.parametrize("level", ["off", "steps", "layers", "probe"])
def test_each_level_records_its_arrays(session, level):
    trace = traced(session, cache="dual", record=level)
    arrays = trace.arrays()
    rank = ("off", "steps", "layers", "probe").index(level)
    promised = {"plan": 1, "planned": 1, "drift": 2, "similarity_step": 2, "probe_step": 3}
    for name, needed in promised.items():
        assert bool(len(arrays[name])) == (rank >= needed), name
    assert len(trace.recomputed_kinds()) == (16 if rank else 0)
    assert trace.meta["spec"]["record"] == level


def test_a_plan_counts_the_exact_forwards(session):
    spec = {"record": "probe", "probe_steps": 5}
    assert session.plan(RunSpec(**BASE | spec))["probe_forwards"] == 5
    assert len(traced(session, **spec).arrays()["probe_step"]) == 5
    assert session.plan(RunSpec(**BASE | spec | {"probe_steps": 64}))["probe_forwards"] == 16
    chosen = {"record": "probe", "probe_at": [7, 3, 3]}
    assert session.plan(RunSpec(**BASE | chosen))["probe_forwards"] == 2
    assert traced(session, **chosen).arrays()["probe_step"].tolist() == [3, 7]
    assert session.plan(RunSpec(**BASE | {"record": "layers"}))["probe_forwards"] == 0


def test_a_run_starts_with_the_facts_of_its_policy(session):
    events = list(session.run(RunSpec(**BASE | {"cache": "dllm_cache"})))
    start = next(event for event in events if isinstance(event, RunStarted))
    assert start.facts == {"budget": [1.0, 0.25]}


def test_a_stopped_run_returns_the_similarity_of_its_steps(session):
    control, steps = Control(), 0
    for event in session.run(RunSpec(**BASE | {"record": "layers"}), control):
        steps += isinstance(event, StepEvent)
        if steps == 3:
            control.stop()
    assert isinstance(event, RunFinished)
    assert event.reason == "stopped"
    assert event.similarity.steps.tolist() == [0, 1, 2]
    assert event.similarity.codes.shape == (6, 2, 2, 3)


def test_measured_times_exclude_the_recorder(session, monkeypatch):
    slow = 0.05

    def late(*args, **kwargs):
        time.sleep(slow)
        return recorded(*args, **kwargs)

    recorded = LayerRecorder.record
    monkeypatch.setattr(LayerRecorder, "record", late)
    arrays = traced(session, record="layers", **TWO_BLOCKS).arrays()
    assert np.median(arrays["forward_ms"] + arrays["decide_ms"]) < slow * 1e3
