"""ModelPool: which models are evicted and which stay, and the progress of loading."""

import dataclasses
import json

import pytest

import engine.core.progress
import engine.serve.model_pool
from engine.config.spec import RaceSpec, RunSpec
from engine.core.control import Control
from engine.core.events import RunFinished, RunStarted, StepEvent, Waiting
from engine.core.progress import Progress, run_to_end, with_progress
from engine.models.loading.hub import Hub
from engine.models.loading.memory_estimate import InsufficientMemoryError
from engine.models.loading.registry import REGISTERED
from engine.serve.memory_budget import InUse, present_devices, spec_run_bytes
from engine.serve.model_pool import MAX_LOADED, ModelPool
from engine.serve.session import Session
from tests.engine.models.loading.test_placement import collect
from tests.engine.serve.test_pause_and_stop import is_free, until
from tests.support.hub_stub import serving
from tests.support.micro import TINY, write_checkpoint

pytest_plugins = ["tests.support.hub_stub"]

SPEC = RunSpec(model="a", prompt="Hello", gen_length=8, block_length=8, steps=8)
WEIGHTS = 83_104 * 4


def spec_of(name, **changes):
    return dataclasses.replace(SPEC, model=name, **changes)


@pytest.fixture
def folders(tmp_path):
    names = ("a", "b", "c", "tiny-llada")
    return {name: write_checkpoint(tmp_path / name, seed=i) for i, name in enumerate(names)}


@pytest.fixture
def pool(folders):
    return ModelPool(folders)


@pytest.fixture
def memory(monkeypatch, pool):
    """A device of this many bytes, of which the pool's models use some."""
    size = {"bytes": 10**9}

    def free():
        models = [one.adapter for one in pool._loaded.values()]
        models += [one.model for one in pool.guiders._loaded.values()]
        held = engine.serve.model_pool.held_bytes(models)
        return {"cpu": size["bytes"] - held.get("cpu", 0)}

    monkeypatch.setattr(engine.serve.model_pool, "free_bytes", free)
    monkeypatch.setattr("engine.models.loading.memory_estimate.free_bytes", free)
    return size


def loaded(pool):
    return [name for name, _, _ in pool._loaded]


def test_the_models_used_last_stay_and_embedded_ones_always(pool):
    assert REGISTERED["tiny-llada"].embedded
    for name in ("tiny-llada", "a", "b", "c"):
        pool.load(spec_of(name))
    assert loaded(pool) == ["tiny-llada", "b", "c"]
    assert len(loaded(pool)) - 1 == MAX_LOADED
    pool.load(spec_of("b"))
    pool.load(spec_of("a"))
    assert loaded(pool) == ["tiny-llada", "b", "a"]


def test_the_oldest_is_evicted_before_loading_if_both_do_not_fit(pool, memory):
    pool.load(spec_of("a"))
    memory["bytes"] = int(WEIGHTS * 1.9)
    meanwhile = [loaded(pool) for _ in pool.load_with_progress(spec_of("b"), tokens=4)]
    assert meanwhile
    assert all(names == [] for names in meanwhile)
    assert loaded(pool) == ["b"]
    memory["bytes"] = int(WEIGHTS * 3)
    pool.load(spec_of("a"))
    assert loaded(pool) == ["b", "a"]


def test_a_model_that_cannot_fit_is_refused_with_a_remedy(pool, memory):
    pool.load(spec_of("a"))
    memory["bytes"] = int(WEIGHTS * 1.3)
    message = r"^model: .* float32 .* cpu, .* set dtype to bfloat16"
    with pytest.raises(InsufficientMemoryError, match=message):
        pool.load(spec_of("b"))
    with pytest.raises(InsufficientMemoryError, match=r"^model: "):
        pool.memory_budget(spec_of("b"), 4)


def test_memory_of_evictable_models_counts_as_free(pool, memory):
    memory["bytes"] = 3 * WEIGHTS
    before = pool.memory_budget(SPEC, 4)
    assert (before.weights_bytes, before.free_bytes) == (WEIGHTS, 3 * WEIGHTS)
    pool.load(SPEC)
    assert pool.memory_budget(SPEC, 4) == before
    assert pool.memory_budget(spec_of("b"), 4).free_bytes == 3 * WEIGHTS
    pool.load(spec_of("tiny-llada"))
    assert pool.memory_budget(spec_of("b"), 4).free_bytes == 2 * WEIGHTS


def test_the_model_of_a_paused_run_does_not_count_as_free(pool, memory):
    """That of a run in progress does: the run has ended when it is another one's turn."""
    pool.load(spec_of("a"))
    memory["bytes"] = int(WEIGHTS * 1.9)
    control = Control()
    pool.in_use.add("run", control, [spec_of("a")])
    assert pool.memory_budget(spec_of("b"), 4).free_bytes == memory["bytes"]
    control.pause()
    message = r"^model: .*, or try again once the runs that are paused have ended$"
    with pytest.raises(InsufficientMemoryError, match=message):
        pool.memory_budget(spec_of("b"), 4)
    assert pool.memory_budget(spec_of("a"), 4).free_bytes == memory["bytes"]
    control.stop()
    assert pool.memory_budget(spec_of("b"), 4).free_bytes == memory["bytes"]


def test_a_paused_run_is_no_remedy_if_its_memory_does_not_suffice(pool, memory):
    pool.load(spec_of("a"))
    memory["bytes"] = WEIGHTS
    control = Control()
    control.pause()
    pool.in_use.add("run", control, [spec_of("a")])
    with pytest.raises(InsufficientMemoryError, match=r"choose a smaller model$"):
        pool.memory_budget(spec_of("b"), 4)


def test_no_model_is_evicted_in_vain(pool, memory):
    for name in ("a", "b"):
        pool.load(spec_of(name))
    memory["bytes"] = int(WEIGHTS * 2.9)
    pool.in_use.add("run", Control(), [spec_of("a")])
    pool.load(spec_of("c"))
    assert loaded(pool) == ["a", "c"]
    memory["bytes"] = int(WEIGHTS * 1.9)
    with pytest.raises(InsufficientMemoryError):
        pool.load(spec_of("b"))
    assert loaded(pool) == ["a", "c"]


def test_no_model_is_evicted_in_vain_for_a_decoder(pool, memory):
    causal = spec_of("a", unmasker="autoregressive", chat=True)
    pool.load(spec_of("b"))
    memory["bytes"] = pool.guiders.decoder_bytes(causal, 4) - 1
    with pytest.raises(InsufficientMemoryError):
        run_to_end(pool.load_with_progress(causal, tokens=4))
    assert loaded(pool) == ["b"]


def test_a_model_is_loaded_once_a_run_that_was_stopped_has_freed_its_own(pool, memory, monkeypatch):
    """A paused run is stopped when its visitor starts another one, which finds the lock free."""

    def collect_garbage():
        memory["bytes"] = int(WEIGHTS * (0.9 if pool.in_use._runs else 1.9))

    control = Control()
    pool.load(spec_of("a"))
    pool.in_use.add("run", control, [spec_of("a")])
    control.stop()
    memory["bytes"] = int(WEIGHTS * 1.9)
    monkeypatch.setattr(engine.serve.model_pool, "free_memory", collect_garbage)
    monkeypatch.setattr("engine.serve.memory_budget.free_memory", collect_garbage)
    monkeypatch.setattr("engine.serve.memory_budget.POLL", 0.0)
    loading = pool.load_with_progress(spec_of("b"), tokens=4)
    next(loading)
    assert loaded(pool) == ["a"]  # the run holds it still, so that its eviction frees nothing
    pool.in_use.remove("run")
    run_to_end(loading)
    assert loaded(pool) == ["b"]


def test_a_stopped_run_that_does_not_end_is_not_waited_for_longer(monkeypatch):
    monkeypatch.setattr("engine.serve.memory_budget.MAX_END", 0.0)
    control, in_use = Control(), InUse()
    in_use.add("run", control, [SPEC])
    control.stop()
    assert list(in_use.end_stopped()) == []


def test_a_run_that_is_paused_holds_its_model_until_it_ends(folders, monkeypatch):
    monkeypatch.setattr(engine.serve.model_pool, "MAX_LOADED", 1)
    session, control = Session(folders), Control()
    events = session.run(spec_of("a"), control)
    until(events, StepEvent)
    control.pause()
    next(events)
    assert list(session.run(spec_of("b")))[-1].reason == "done"
    assert loaded(session._models) == ["a", "b"]
    control.resume()
    assert until(events, RunFinished).reason == "done"
    assert next(events, None) is None
    assert list(session.run(spec_of("c")))[-1].reason == "done"
    assert loaded(session._models) == ["c"]


def test_a_run_of_a_loaded_model_evicts_others_if_it_needs_their_memory(pool, memory):
    for name in ("b", "a"):
        pool.load(spec_of(name))
    memory["bytes"] = 2 * WEIGHTS + spec_run_bytes(SPEC, pool.info("a"), 4)
    run_to_end(pool.load_with_progress(SPEC, tokens=4))
    assert loaded(pool) == ["b", "a"]
    memory["bytes"] -= 1
    pool.memory_budget(SPEC, 4)  # the plan counts the memory of b as free
    pool.in_use.add("run", Control(), [spec_of("b")])
    run_to_end(pool.load_with_progress(SPEC, tokens=4))
    assert loaded(pool) == ["b", "a"]
    pool.in_use.remove("run")
    run_to_end(pool.load_with_progress(SPEC, tokens=4))
    assert loaded(pool) == ["a"]


@pytest.mark.parametrize("device", ["cpu", "auto"])
def test_a_decoder_evicts_models_if_it_needs_their_memory(pool, memory, device):
    causal = spec_of("a", unmasker="autoregressive", chat=True, device=device)
    pool.load(spec_of("b"))
    memory["bytes"] = WEIGHTS + pool.guiders.decoder_bytes(causal, 4) - 1
    pool.memory_budget(causal, 4)  # the plan counts the memory of b as free
    run_to_end(pool.load_with_progress(causal, tokens=4))
    assert loaded(pool) == []


def test_the_weights_of_a_loaded_decoder_are_not_needed_twice(pool, memory):
    causal = spec_of("a", unmasker="autoregressive", chat=True)
    before = pool.memory_budget(causal, 4)
    run_to_end(pool.load_with_progress(causal, tokens=4))
    assert pool.memory_budget(causal, 4) == before
    memory["bytes"] = before.weights_bytes * 5 // 4
    pool.memory_budget(causal, 4)


def test_a_decoder_that_a_run_does_not_need_is_evicted_for_it(pool, memory):
    causal = spec_of("a", unmasker="autoregressive", chat=True)
    run_to_end(pool.load_with_progress(causal, tokens=4))
    weights = pool.memory_budget(causal, 4).weights_bytes
    memory["bytes"] = weights + WEIGHTS
    assert pool.memory_budget(SPEC, 4).free_bytes == weights + WEIGHTS
    pool.in_use.add("run", Control(), [causal])
    with pytest.raises(InsufficientMemoryError):
        run_to_end(pool.load_with_progress(SPEC, tokens=4))
    assert len(pool.guiders._loaded) == 1
    pool.in_use.remove("run")
    run_to_end(pool.load_with_progress(SPEC, tokens=4))
    assert (len(pool.guiders._loaded), loaded(pool)) == (0, ["a"])


def test_models_that_are_preloaded_do_not_evict_each_other(folders, pool, memory):
    session = Session(folders)
    session._models = pool
    for name in ("a", "b", "c"):
        session.preload(name)
    assert loaded(pool) == ["a", "b", "c"]
    memory["bytes"] = 3 * WEIGHTS
    with pytest.raises(InsufficientMemoryError):
        session.preload("tiny-llada")
    assert loaded(pool) == ["a", "b", "c"]


@pytest.mark.usefixtures("online")
def test_a_model_of_the_hub_is_loaded_without_a_run(tmp_path):
    """Neither block sizes nor a missing chat template matter before there is a prompt."""
    plain = write_checkpoint(tmp_path / "plain")
    path = plain / "tokenizer_config.json"
    config = json.loads(path.read_text("utf-8"))
    assert config.pop("chat_template")
    path.write_text(json.dumps(config), "utf-8")
    models = {"own/block": TINY.parent / "tiny-block", "own/plain": plain}
    with serving(models) as stub:
        session = Session({}, Hub(tmp_path / "cache", stub.endpoint))
        session.preload("own/block")
        session.preload("own/plain")
        assert loaded(session._models) == ["own/block", "own/plain"]
        fresh = Session({}, Hub(tmp_path / "fresh", stub.endpoint))
        assert fresh.environment(RunSpec(model="own/plain"))["checkpoint"]


def test_the_lanes_of_a_race_do_not_evict_each_other(folders, monkeypatch):
    monkeypatch.setattr(engine.serve.model_pool, "MAX_LOADED", 1)
    session = Session(folders)
    ends = [
        event.reason
        for _, event in session.race(RaceSpec(spec_of("a"), spec_of("b")))
        if isinstance(event, RunFinished)
    ]
    assert ends == ["done", "done"]
    assert loaded(session._models) == ["a", "b"]
    session._models.load(spec_of("c"))
    assert loaded(session._models) == ["c"]


def test_loading_reports_growing_bytes(folders, monkeypatch):
    monkeypatch.setattr(
        "engine.serve.race.with_progress", lambda *given: with_progress(*given, interval=0)
    )
    events = list(Session(folders).run(SPEC))
    waits = [event for event in events if isinstance(event, Waiting)]
    done = [event.done for event in waits]
    assert (waits.pop().state, done.pop()) == ("warmup", 0)
    assert {(event.state, event.total, event.what) for event in waits} == {
        ("loading", WEIGHTS, "a")
    }
    assert done == sorted(done)
    assert len(set(done)) > 5
    assert done[-1] == WEIGHTS
    assert isinstance(events[len(waits) + 1], RunStarted)


def test_a_stop_while_loading_releases_the_lock_and_keeps_no_model(folders, monkeypatch):
    monkeypatch.setattr(
        "engine.serve.race.with_progress", lambda *given: with_progress(*given, interval=0)
    )
    session, control, events = Session(folders), Control(), []
    for event in session.run(SPEC, control):
        events.append(event)
        if len(events) == 3:
            control.stop()
    assert [type(event) for event in events] == [Waiting] * 3 + [RunFinished]
    assert events[-1].reason == "stopped"
    assert loaded(session._models) == []
    assert is_free(session)
    assert list(session.run(SPEC))[-1].reason == "done"


def test_a_stop_while_loading_frees_what_was_loaded(folders, monkeypatch):
    """A GPU's allocator keeps what is freed until it is told to return it."""
    monkeypatch.setattr(
        "engine.serve.race.with_progress", lambda *given: with_progress(*given, interval=0)
    )
    session, control, held = Session(folders), Control(), []
    monkeypatch.setattr(
        "engine.serve.session.free_memory", lambda: held.append(not is_free(session))
    )
    for event in session.run(SPEC, control):
        if isinstance(event, Waiting) and event.done:
            control.stop()
    assert held == [True]


def steps(closed):
    try:
        for n in range(10):
            yield Progress(n, 9)
        return "value"
    finally:
        closed.append(True)


def test_progress_is_reported_at_most_once_an_interval(monkeypatch):
    clock = iter(i / 10 for i in range(100))
    monkeypatch.setattr(engine.core.progress.time, "monotonic", lambda: next(clock))
    value, waits = collect(with_progress(steps([]), "loading", "x", Control(), interval=0.35))
    assert value == "value"
    assert 1 < len(waits) < 10
    assert waits[0] == Waiting("loading", 0, 9, "x")


def test_a_stop_closes_the_generator():
    closed, control = [], Control()
    stream = with_progress(steps(closed), "loading", "x", control, interval=0)
    next(stream)
    control.stop()
    assert collect(stream) == (None, [])
    assert closed == [True]


def test_the_devices_of_this_machine_are_listed():
    devices = present_devices()
    assert (devices[0], devices[-1]) == ("cpu", "auto")
    assert Session({}).catalog()["devices"] == devices


def test_a_run_on_device_auto_is_planned_and_run(folders):
    session = Session(folders)
    spec = spec_of("a", device="auto")
    assert session.plan(spec)["memory_bytes"] > WEIGHTS
    assert list(session.run(spec))[-1].reason == "done"
