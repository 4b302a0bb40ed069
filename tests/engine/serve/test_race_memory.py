"""A race whose lanes fit one by one, but not together, is refused before a model is loaded."""

from dataclasses import replace
from types import SimpleNamespace

import pytest

from engine.config.spec import RaceSpec
from engine.core.control import Control
from engine.core.events import RunFinished
from engine.models.loading.memory_estimate import InsufficientMemoryError
from engine.serve import guider_pool, model_pool
from engine.serve.memory_budget import held_bytes
from engine.serve.out_of_memory import check_race
from engine.serve.session import Session
from tests.engine.serve.test_model_pool import WEIGHTS, loaded, spec_of
from tests.support.micro import ROOT, write_checkpoint

RACE = RaceSpec(spec_of("a"), spec_of("b"))
PLAN = {
    "dtype": "float32", "weights_bytes": 6, "memory_bytes": 8, "free_bytes": 10, "kept_bytes": 0,
    "guider_bytes": 0,
}  # fmt: skip
NOTHING_RUNS = SimpleNamespace(in_use=SimpleNamespace(specs=lambda paused: []))


@pytest.fixture
def session(tmp_path):
    return Session({name: write_checkpoint(tmp_path / name, seed=ord(name)) for name in "ab"})


@pytest.fixture
def memory(session, monkeypatch):
    """A device of so many bytes: enough for a model and a run, and for half another model."""
    size = {"bytes": session.plan(RACE.a)["memory_bytes"] + WEIGHTS // 2}

    def free():
        held = held_bytes([one.adapter for one in session._models._loaded.values()])
        return {"cpu": size["bytes"] - held["cpu"]}

    for place in ("serve.model_pool", "models.loading.memory_estimate"):
        monkeypatch.setattr(f"engine.{place}.free_bytes", free)
    return size


def reasons(events):
    return [event.reason for _, event in events if isinstance(event, RunFinished)]


def test_models_that_do_not_fit_together_are_refused_before_one_is_loaded(session, memory):
    for spec in (RACE.a, RACE.b):
        assert session.plan(spec)["free_bytes"] == memory["bytes"]
    message = r"^model: the models of both lanes and a run need .* one model for both lanes$"
    with pytest.raises(InsufficientMemoryError, match=message):
        next(session.race(RACE))
    with pytest.raises(InsufficientMemoryError, match=message):
        session.check_race(RACE, [session.plan(spec) for spec in (RACE.a, RACE.b)])
    assert loaded(session._models) == []
    memory["bytes"] += WEIGHTS
    assert reasons(session.race(RACE)) == ["done", "done"]


@pytest.mark.usefixtures("memory")
def test_sizes_that_a_download_gave_are_checked_before_a_model_is_loaded(session, monkeypatch):
    plan, unknown = session.plan, [{"weights_bytes": None}] * 2
    monkeypatch.setattr(
        session, "plan", lambda spec: plan(spec) | (unknown.pop() if unknown else {})
    )
    monkeypatch.setattr(session._models, "run_fetch_bytes", lambda spec: None)
    ends = [event for _, event in session.race(RACE) if isinstance(event, RunFinished)]
    assert [end.reason for end in ends] == ["failed", "failed"]
    assert "the models of both lanes and a run need" in ends[0].message
    assert loaded(session._models) == []


@pytest.mark.usefixtures("memory")
def test_models_that_may_be_spread_over_other_places_are_not_refused(session):
    """The second one goes to the disk, as far as it does not fit."""
    race = RaceSpec(*(replace(spec, device="auto") for spec in (RACE.a, RACE.b)))
    assert reasons(session.race(race)) == ["done", "done"]


@pytest.mark.parametrize(("other", "refused"), [("cuda:0", True), ("cuda:1", False)])
def test_the_two_names_of_the_first_gpu_are_one_device(other, refused):
    specs = [replace(RACE.a, device="cuda"), replace(RACE.b, device=other)]
    if refused:
        with pytest.raises(InsufficientMemoryError, match="models of both lanes"):
            check_race(specs, [PLAN, PLAN], NOTHING_RUNS)
    else:
        check_race(specs, [PLAN, PLAN], NOTHING_RUNS)


def test_a_model_under_both_names_of_the_first_gpu_is_needed_once():
    specs = [replace(RACE.a, device=name) for name in ("cuda", "cuda:0")]
    check_race(specs, [PLAN, PLAN], NOTHING_RUNS)


@pytest.mark.parametrize(("free", "refused"), [(12, True), (13, False)])
def test_both_lanes_of_a_model_keep_their_caches_and_one_computes(free, refused):
    """Weights of 6 bytes, caches of 3 and 2, and a step of 2."""
    plans = [
        PLAN | {"memory_bytes": 6 + kept + step, "kept_bytes": kept, "free_bytes": free}
        for kept, step in ((3, 1), (2, 2))
    ]
    if refused:
        with pytest.raises(InsufficientMemoryError, match="the caches of both lanes need"):
            check_race([RACE.a, RACE.a], plans, NOTHING_RUNS)
    else:
        check_race([RACE.a, RACE.a], plans, NOTHING_RUNS)


def test_a_guider_of_one_lane_stays_while_the_other_lane_computes():
    """Weights of 6 bytes, a guider of 4, and a step of 3."""
    plans = [
        PLAN | {"memory_bytes": 6 + guider + step, "guider_bytes": guider, "free_bytes": 12}
        for guider, step in ((0, 3), (4, 1))
    ]
    with pytest.raises(InsufficientMemoryError, match="the caches of both lanes need"):
        check_race([RACE.a, RACE.a], plans, NOTHING_RUNS)


def test_a_guider_of_both_lanes_is_counted_once():
    plans = [PLAN | {"memory_bytes": 6 + 4 + 2, "guider_bytes": 4, "free_bytes": 12}] * 2
    check_race([RACE.a, RACE.a], plans, NOTHING_RUNS)


def test_the_caches_of_both_lanes_are_checked_before_a_race(session, memory):
    kept = replace(RACE.a, cache="dllm_cache", gen_length=64, steps=64)
    memory["bytes"] = 10**9
    plan = session.plan(kept)
    assert plan["kept_bytes"] // 2 > WEIGHTS // 20
    memory["bytes"] = plan["memory_bytes"] + WEIGHTS // 20 + plan["kept_bytes"] // 2
    session.plan(kept)
    with pytest.raises(InsufficientMemoryError, match="the caches of both lanes need"):
        next(session.race(RaceSpec(kept, kept)))
    memory["bytes"] += plan["kept_bytes"] // 2 + 1
    assert reasons(session.race(RaceSpec(kept, kept))) == ["done", "done"]


@pytest.mark.parametrize("key", [model_pool._key, lambda spec: guider_pool._key(spec, ROOT)])
def test_a_model_is_held_once_under_both_names_of_the_first_gpu(key):
    keys = [key(replace(RACE.a, device=name)) for name in ("cuda", "cuda:0", "cuda:1", "auto")]
    assert keys[0] == keys[1]
    assert len(set(keys)) == 3


@pytest.mark.usefixtures("memory")
def test_lanes_of_the_same_model_need_it_once(session):
    assert reasons(session.race(RaceSpec(RACE.a, RACE.a))) == ["done", "done"]


def test_a_model_that_a_paused_run_holds_needs_no_more_memory(session, memory):
    memory["bytes"] += WEIGHTS
    session._models.load(RACE.a)
    control = Control()
    control.pause()
    session._models.in_use.add("run", control, [RACE.a])
    assert session.plan(RACE.b)["free_bytes"] == memory["bytes"] - WEIGHTS
    assert reasons(session.race(RACE)) == ["done", "done"]
