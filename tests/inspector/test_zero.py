"""ZeroGPU in shape: a forked worker that pickles every yield, with the model on the CPU."""

import os
import pickle
import time
from dataclasses import replace
from functools import partial

import numpy as np
import pytest

import engine.serve.lane
from engine.config.branch_start import BranchStart
from engine.config.spec import RaceSpec
from engine.core.control import Control
from engine.core.events import RunFinished, RunStarted, StepEvent, Waiting
from engine.estimate.gpu_time import GPUS
from engine.serve.session import Session
from engine.trace.trace import Trace
from inspector.space.zero import SharedGpu, ZeroSession
from tests.engine.serve.test_race import FAST, PLAIN
from tests.support.forking import spaces

CARD = GPUS["zero-a10g"]
RACE = RaceSpec(PLAIN, FAST)
QUICK = SharedGpu(
    frozenset({("micro", "float32")}), 48_000_000_000, lambda spec, plan: 2.0, device="cpu"
)


@pytest.fixture
def inner(checkpoint):
    session = Session({"micro": checkpoint})
    session._models.load(PLAIN)
    return session


@pytest.fixture
def zero(inner):
    return ZeroSession(inner, QUICK, spaces.GPU)


def traces(events):
    """Traces of both lanes and what was waited for."""
    found, waits = {"a": Trace(), "b": Trace()}, []
    for name, event in events:
        found[name].append(event)
        if isinstance(event, Waiting):
            waits.append(event)
    return found, waits


def same(one, other):
    """Whether two traces hold the same run, clocks left out."""
    a, b = one.arrays(), other.arrays()
    clocks = {"forward_ms", "decide_ms"}
    return one.meta["texts"] == other.meta["texts"] and all(
        np.array_equal(a[name], b[name], equal_nan=a[name].dtype.kind == "f")
        for name in a
        if name not in clocks
    )


@pytest.mark.parametrize("record", ["off", "layers"])
def test_a_race_in_a_worker_leaves_the_traces_of_one_here(inner, zero, record):
    race = RaceSpec(*(replace(spec, record=record) for spec in (PLAIN, FAST)))
    here, _ = traces(inner.race(race))
    there, waits = traces(zero.race(race, Control()))
    assert (waits[0].state, waits[0].seconds) == ("gpu", 4 * 1.5)
    for lane in "ab":
        assert there[lane].meta["reason"] == "done"
        assert same(here[lane], there[lane])
    other, _ = traces(inner.race(RaceSpec(replace(race.a, prompt="Nuts"), race.b)))
    assert not same(other["a"], there["a"])


def test_it_ran_in_another_process_which_knows_nothing_of_a_held_lock(inner, zero, monkeypatch):
    advance = engine.serve.lane.Lane.advance
    monkeypatch.setattr(
        engine.serve.lane.Lane, "advance",
        lambda self: replace(found, block=os.getpid())
        if isinstance(found := advance(self), StepEvent) else found,
    )  # fmt: skip
    held = inner.run(PLAIN)
    next(event for event in held if isinstance(event, StepEvent))  # the line here is taken
    steps = [e for _, e in zero.race(RACE, Control()) if isinstance(e, StepEvent)]
    assert steps
    assert os.getpid() not in {step.block for step in steps}
    held.close()


def test_what_crosses_is_a_few_batches_and_pickles(inner):
    sizes = []

    def decorate(task, duration):
        def handler(*given):
            for item in task(*pickle.loads(pickle.dumps(given))):
                sizes.append(len(pickle.dumps(item)))
                yield pickle.loads(pickle.dumps(item))

        return handler

    list(ZeroSession(inner, QUICK, decorate).race(RACE, Control()))
    assert len(sizes) < 12  # batches at eight a second, not one a step
    assert max(sizes) < 100_000


def test_a_stop_ends_the_worker_within_a_step_and_keeps_what_was_made(zero, tmp_path, monkeypatch):
    advance, begun = engine.serve.lane.Lane.advance, []

    def held(self):
        """A step; after some, none ends before the stop has arrived, however late that is."""
        begun.append(time.sleep(0.05))
        while len(begun) > 8 and list(tmp_path.glob("*/go")):
            time.sleep(0.01)
        return advance(self)

    monkeypatch.setattr(engine.serve.lane.Lane, "advance", held)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    control, lanes = Control(), []
    for _, event in zero.race(RACE, control):
        if isinstance(event, StepEvent):
            control.stop()
        if isinstance(event, RunFinished):
            lanes.append(event)
    assert [end.reason for end in lanes] == ["stopped", "stopped"]
    assert 0 < lanes[0].metrics["nfe"] < 16
    assert lanes[0].canvas.shape[1] > 16


def test_a_closed_tab_ends_the_worker(zero, monkeypatch):
    """Within its run, which would take more than ten seconds."""
    advance, begun, noted = engine.serve.lane.Lane.advance, spaces.CONTEXT.Value("i", 0), []

    def slow(self):
        begun.value += 1
        time.sleep(0.02)
        return advance(self)

    monkeypatch.setattr(engine.serve.lane.Lane, "advance", slow)
    monkeypatch.setattr(spaces, "note", lambda **said: noted.append(said))
    events = zero.race(RaceSpec(replace(PLAIN, gen_length=512, steps=512), FAST), Control())
    next(event for _, event in events if isinstance(event, RunStarted))
    events.close()
    assert noted[-1]["exit"] == 0
    assert begun.value < 512


def test_a_pause_holds_what_is_shown_and_a_step_shows_one_more(zero, monkeypatch):
    monkeypatch.setattr("inspector.space.zero.PAUSE_POLL_S", 0.01)
    control = Control()
    events = zero.race(RACE, control)
    next(event for _, event in events if isinstance(event, RunStarted))
    control.pause()
    assert [next(events)[1].state for _ in range(3)] == ["paused"] * 3
    control.step()
    assert not isinstance(next(events)[1], Waiting)
    assert next(events)[1].state == "paused"
    control.resume()
    ends = [event for _, event in events if isinstance(event, RunFinished)]
    assert [end.reason for end in ends] == ["done", "done"]


def test_a_run_paused_for_more_than_the_limit_is_stopped(zero, monkeypatch):
    monkeypatch.setattr("inspector.space.zero.PAUSE_POLL_S", 0.01)
    monkeypatch.setattr("inspector.space.zero.MAX_PAUSE", 0.05)
    slow = engine.serve.lane.Lane.advance
    monkeypatch.setattr(
        engine.serve.lane.Lane, "advance", lambda self: (time.sleep(0.02), slow(self))[1]
    )
    control = Control()
    long = replace(PLAIN, gen_length=512, steps=512)
    events = zero.race(RaceSpec(long, long), control)
    next(event for _, event in events if isinstance(event, RunStarted))
    control.pause()
    begun, ends = time.monotonic(), []
    while len(ends) < 2:
        assert time.monotonic() - begun < 20, "the pause does not end"
        event = next(events)[1]
        if isinstance(event, RunFinished):
            ends.append(event.reason)
    assert ends == ["stopped", "stopped"]
    assert control.state == "stopped"


def test_a_branch_takes_its_parent_along(inner, zero):
    parent = traces([("a", e) for e in inner.run(PLAIN)])[0]["a"]
    spec = replace(PLAIN, start=BranchStart("p.a", 5, ()))
    for session in (inner, zero):
        end = list(session.run(spec, Control(), {"p.a": parent, "q.a": Trace()}))[-1]
        assert end.reason == "done"
        assert end.metrics["nfe"] == 11


def test_what_asks_for_no_gpu_is_run_here(inner):
    def never(task, duration):
        return lambda *given: pytest.fail("a GPU was asked for")

    gpu = replace(QUICK, device="cuda")
    session = ZeroSession(inner, gpu, never)
    assert session.catalog()["devices"] == ["cpu", "cuda"]
    assert list(session.run(PLAIN, Control()))[-1].reason == "done"
    assert "gpu_seconds" not in session.plan(PLAIN)
    with pytest.raises(ValueError, match="device: both lanes must have the same"):
        next(session.race(RaceSpec(PLAIN, replace(FAST, device="cuda")), Control()))


def test_the_duration_is_computed_from_the_plan_and_shown_before(inner):
    asked = []

    def decorate(task, duration):
        def handler(*given):
            asked.append(duration(*given))
            return task(*given)

        return handler

    gpu = replace(QUICK, seconds=lambda spec, plan: plan["max_forwards"] / 4)
    session = ZeroSession(inner, gpu, decorate)
    plans = [session.plan(spec)["gpu_seconds"] for spec in (PLAIN, FAST)]
    assert plans == [6, 6]  # 16 forwards, four a second, half as much again
    assert session.plan(replace(PLAIN, steps=8))["gpu_seconds"] == 3
    list(session.race(RACE, Control()))
    assert asked == [8]


REFUSED = [
    ({}, {"loaded": frozenset()}, "model: micro is not loaded .* set device to cpu"),
    ({"dtype": "bfloat16"}, {}, "dtype: micro is loaded for the shared GPU as float32"),
    ({}, {"memory": 1000}, "model: its weights and the run take .* lower gen_length"),
    ({}, {"seconds": lambda spec, plan: 61.0}, "device: this run may take 61 s .* lower gen"),
]


@pytest.mark.parametrize(("changes", "gpu", "said"), REFUSED)
def test_what_cannot_run_there_is_refused_before_a_gpu_is_asked_for(inner, changes, gpu, said):
    session = ZeroSession(inner, replace(QUICK, **gpu), spaces.GPU)
    for ask in (session.plan, lambda spec: next(session.race(RaceSpec(spec, spec), Control()))):
        with pytest.raises(ValueError, match=said):
            ask(replace(PLAIN, **changes))


def test_lanes_that_do_not_fit_together_are_refused_before_a_gpu_is_asked_for(inner):
    """As those of a recording, which needs more memory than the race before it."""
    kept = replace(PLAIN, cache="dual")
    plan = inner.plan(kept)
    gpu = replace(QUICK, memory=plan["memory_bytes"] + plan["kept_bytes"] // 2)
    session = ZeroSession(inner, gpu, lambda task, duration: pytest.fail)
    session.plan(kept)
    with pytest.raises(ValueError, match="the caches of both lanes need"):
        next(session.race(RaceSpec(kept, kept), Control()))


def test_a_causal_model_is_loaded_within_the_run(inner):
    """The formats of the models that are loaded for the shared GPU do not bind its own model."""
    gpu = replace(QUICK, loaded=frozenset(), seconds=partial(inner.seconds, CARD))
    session = ZeroSession(inner, gpu, spaces.GPU)
    causal = replace(PLAIN, unmasker="autoregressive", cache="none")
    asked = [
        session.plan(replace(causal, dtype=name))["gpu_seconds"] for name in ("float32", "auto")
    ]
    assert asked[0] == asked[1] > 0


def test_a_refused_quota_is_explained(inner):
    session = ZeroSession(inner, QUICK, partial(spaces.GPU, left=3))
    ends = [e for _, e in session.race(RACE, Control()) if isinstance(e, RunFinished)]
    assert [end.reason for end in ends] == ["failed", "failed"]
    said = ends[0].message
    assert "ZeroGPU quota" in said
    assert "4s requested vs. 3s left" in said
    assert "sign in to Hugging Face" in said


def test_what_breaks_in_the_worker_is_told(inner, zero, monkeypatch):
    def fail(self):
        raise RuntimeError("odd")

    with monkeypatch.context() as patch:
        patch.setattr(engine.serve.lane.Lane, "advance", fail)
        ends = [e for _, e in zero.race(RACE, Control()) if isinstance(e, RunFinished)]
    assert {end.message for end in ends} == {
        "The run failed: odd. Change the settings or run it again."
    }
    with monkeypatch.context() as patch:
        patch.setattr(Session, "forked", fail)
        ends = [e for _, e in zero.race(RACE, Control()) if isinstance(e, RunFinished)]
    assert "worker ended before the run did" in ends[0].message
    assert list(zero.run(PLAIN, Control()))[-1].reason == "done"


def test_where_no_gpu_is_shared_the_package_changes_nothing():
    real = pytest.importorskip("spaces")

    def work():
        yield 1

    assert real.GPU(work, duration=lambda: 1) is work
