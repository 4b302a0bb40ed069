"""Drifts that a cache needs and no file has are measured before a run, seen and stopped."""

from dataclasses import replace

import numpy as np
import pytest

from engine.cache.calibration import singular_proxy
from engine.cache.calibration.drift_profile import BINS, DriftProfile, save, shipped_path
from engine.catalog import policies
from engine.config.spec import RunSpec
from engine.core.control import Control
from engine.core.events import RunFinished, RunStarted, Waiting
from engine.core.files import ASSETS
from engine.core.progress import run_to_end
from engine.estimate.gpu_time import GPUS, LAUNCH_SECONDS, RESERVE
from engine.estimate.shape_model import ShapeAdapter
from engine.models.loading.families import embedded_models
from engine.serve import drift_meter
from engine.serve.calibrate import calibration_forwards
from engine.serve.loaded_model import policy_context_of, prepare_policies
from engine.serve.model_pool import ModelPool
from engine.serve.session import Session
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


def test_a_run_derives_proxies_layer_by_layer_and_a_stop_keeps_those_that_are_done(
    session, monkeypatch
):
    monkeypatch.setattr(singular_proxy, "LONG", -1.0)
    spec, control, waits = replace(SPEC, cache="spa_cache"), Control(), []
    for event in session.run(spec, control):
        if getattr(event, "state", "") == "calibrating":
            waits.append((event.done, event.total, event.unit))
            control.stop()
    assert waits == [(1, 2, "layers")]
    assert states(session.run(spec)) == ["warmup"]


def test_the_drifts_are_those_that_a_job_measures(checkpoint):
    seen, own = (ModelPool({"micro": checkpoint}).load(SPEC) for _ in range(2))
    assert run_to_end(prepare_policies(seen, SPEC)) == 1
    assert run_to_end(prepare_policies(seen, SPEC)) == 0
    measured = policy_context_of(own, "micro").measure("dual", "q0")
    assert list(seen.profiles) == [("dual", "q0")]
    assert np.array_equal(seen.profiles["dual", "q0"].counts, measured.counts)


def planned(session, **changes):
    return session.plan(replace(SPEC, **changes))["calibration_forwards"]


def test_a_plan_has_the_forwards_of_drifts_that_no_file_has(session):
    most = 2 * drift_meter.ANSWER
    fitted = {"cache": "spa_cache", "knobs": {"spa_cache.budget": "fitted"}}
    assert [planned(session), planned(session, **fitted)] == [most, most]
    assert [planned(session, cache=name) for name in ("none", "dual", "spa_cache")] == [0, 0, 0]
    assert planned(session, knobs={"dare_kv.qbar": 0.0}) == 0
    assert planned(session, cache="none", unmasker="autoregressive") == 0
    for event in session.run(SPEC):
        if getattr(event, "state", "") == "calibrating":
            assert event.total == most
    assert planned(session) == 0
    assert planned(session, cache="dare_kv") == most, "they are of another base"


def test_drifts_that_were_measured_are_not_planned_where_no_file_can_be_written(
    session, monkeypatch, tmp_path
):
    blocked = tmp_path / "a file"
    blocked.touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(blocked))
    list(session.run(SPEC))
    assert planned(session) == 0
    assert planned(session, dtype="bfloat16") > 0, "that copy of the model is not loaded"


@pytest.mark.parametrize("cache", ["prefix+dare_o", "freecache+dare_kv"])
def test_drifts_that_come_with_a_model_are_not_planned(cache):
    session = Session(embedded_models(ASSETS))
    assert planned(session, model="tiny-llada", cache=cache) == 0


def test_drifts_of_other_weights_are_planned(folder):
    run = replace(SPEC, model=folder.name)
    session = Session({folder.name: folder})
    session._models.load(run)
    shipped = shipped_path(folder, "dual", "q0")
    shipped.parent.mkdir()
    of_others = DriftProfile("dual", "q0", np.ones((2, BINS), np.int64), np.ones(2), "others")
    save(of_others, shipped)
    assert planned(session, model=folder.name) == 2 * drift_meter.ANSWER


@pytest.mark.parametrize(
    ("model", "cache", "block"), [("micro", "dual+dare_kv", 8), ("tiny-block", "frozen+dare_o", 16)]
)
def test_no_more_forwards_are_measured_than_planned(checkpoint, model, cache, block):
    pool = ModelPool({"micro": checkpoint} | embedded_models(ASSETS))
    spec = replace(SPEC, model=model, cache=cache, block_length=block)
    loaded = pool.load(spec)
    most = calibration_forwards(pool, spec, loaded.adapter.info)
    progress = list(prepare_policies(loaded, spec))
    assert {one.total for one in progress} == {most}
    done = [one.done for one in progress]
    assert 0 < len(done) <= most
    assert done == sorted(set(done))
    assert done[-1] <= most


def test_a_plan_derives_nothing_from_weights(session, monkeypatch):
    """The first product on the meta device takes up to a second."""
    monkeypatch.setattr(ShapeAdapter, "value_weight", lambda *given: pytest.fail("it was read"))
    assert planned(session, cache="spa_cache") == 0


def test_a_policy_that_reads_weights_has_a_plan(session, monkeypatch):
    read = lambda policy, context: context.adapter.norm.weight.sum().item()  # noqa: E731
    monkeypatch.setattr(policies()["dual"], "prepare", read)
    assert planned(session, cache="dual") == 0


def test_the_seconds_of_a_shared_gpu_contain_the_measurement(session):
    gpu, plan = GPUS["zero-a10g"], session.plan(SPEC)
    without = session.seconds(gpu, SPEC, plan | {"calibration_forwards": 0})
    forwards = 2 * drift_meter.ANSWER
    more = RESERVE * forwards * LAUNCH_SECONDS * 2  # layers
    assert session.seconds(gpu, SPEC, plan) == pytest.approx(without + more)
