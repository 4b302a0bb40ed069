"""Pause, step, stop and wait: each takes effect within one step."""

import numpy as np
import pytest

from engine.config.spec import RaceSpec
from engine.core.control import Control, StoppedError
from engine.core.events import RunFinished, RunStarted, StepEvent, Waiting
from tests.engine.serve.test_race import FAST, PLAIN


@pytest.fixture(autouse=True)
def fast_beats(monkeypatch):
    monkeypatch.setattr("engine.serve.race.HEARTBEAT", 0.01)


def until(events, kind, times=1):
    """The event of a kind that comes as number `times`."""
    for event in events:
        times -= isinstance(event, kind)
        if not times:
            return event
    raise AssertionError(f"no {kind.__name__}")


def is_free(session):
    """Whether no run holds the lock of a session or waits for it."""
    return session.queue._holder is None and not session.queue._waiting


def begun(session, spec=PLAIN, steps=3):
    """A run after some steps, and its control."""
    control = Control()
    events = session.run(spec, control)
    until(events, StepEvent, steps)
    return events, control


def test_a_pause_holds_the_run_and_releases_the_lock(session):
    events, control = begun(session)
    assert not is_free(session)
    control.pause()
    assert [next(events) for _ in range(5)] == [Waiting("paused")] * 5
    assert is_free(session)


def test_a_single_step_runs_one_step(session):
    events, control = begun(session)
    control.pause()
    next(events)
    for expected in (3, 4, 5):
        control.step()
        assert next(events).step == expected
        assert [next(events) for _ in range(2)] == [Waiting("paused")] * 2


def test_a_resumed_run_equals_one_without_a_pause(session):
    expected = list(session.run(PLAIN))[-1]
    events, control = begun(session)
    control.pause()
    next(events)
    control.resume()
    end = until(events, RunFinished)
    assert end.reason == "done"
    assert np.array_equal(end.canvas, expected.canvas)
    assert end.metrics["nfe"] == expected.metrics["nfe"] == 16


@pytest.mark.parametrize("paused", [False, True])
def test_a_stop_is_the_next_event(session, paused):
    events, control = begun(session)
    if paused:
        control.pause()
        next(events)
    control.stop()
    end = next(events)
    assert (end.reason, end.metrics["nfe"], end.metrics["positions"]) == ("stopped", 3, 3)
    mask = session._models.load(PLAIN).adapter.info.mask_id
    assert (end.canvas[0, -16:] == mask).sum() == 13
    assert "mask" not in end.texts[0]
    assert next(events, None) is None
    assert is_free(session)


def test_a_stop_ends_both_lanes(session):
    control = Control()
    events = session.race(RaceSpec(PLAIN, FAST), control)
    for _, event in events:
        if isinstance(event, StepEvent):
            control.stop()
            break
    assert [(n, e.reason) for n, e in events] in (
        [("a", "stopped"), ("b", "stopped")],
        [("b", "stopped"), ("a", "stopped")],
    )


def test_a_run_stopped_before_it_starts_computes_nothing(session):
    control = Control()
    control.stop()
    assert [type(e) for e in session.run(PLAIN, control)] == [RunFinished]
    assert is_free(session)


def test_a_second_run_waits_for_the_lock_and_then_runs(session):
    first, _ = begun(session)
    second = session.run(FAST)
    waits = [next(second) for _ in range(3)]
    assert {(wait.state, wait.ahead) for wait in waits} == {("lock", 1)}
    assert until(first, RunFinished).reason == "done"
    assert next(first, None) is None
    assert until(second, RunFinished).reason == "done"


def test_a_waiting_run_can_be_stopped(session):
    first, _ = begun(session)
    control = Control()
    second = session.run(FAST, control)
    next(second)
    control.stop()
    assert until(second, RunFinished).reason == "stopped"
    assert not is_free(session)
    first.close()
    assert is_free(session)


def test_a_run_that_is_stopped_while_it_waits_measures_nothing(session, monkeypatch):
    """It would time products beside the run that holds the lock."""
    asked = []
    monkeypatch.setattr(
        session._models.formats, "measured", lambda spec: asked.append(spec) or spec
    )
    first, _ = begun(session)
    asked.clear()
    control = Control()
    second = session.run(FAST, control)
    next(second)
    control.stop()
    list(second)
    assert asked == []
    first.close()


def test_another_run_can_run_while_one_is_paused(session):
    expected = [list(session.run(spec))[-1].texts for spec in (PLAIN, FAST)]
    first, control = begun(session)
    control.pause()
    next(first)
    assert until(session.run(FAST), RunFinished).texts == expected[1]
    control.resume()
    assert until(first, RunFinished).texts == expected[0]


def test_a_resumed_run_waits_while_another_holds_the_lock(session):
    first, control = begun(session)
    control.pause()
    next(first)
    second, _ = begun(session, FAST, 1)
    control.resume()
    assert next(first).state == "lock"
    second.close()
    assert isinstance(next(first), StepEvent)


def test_a_run_paused_before_its_first_step_still_starts(session):
    control = Control()
    control.pause()
    events = session.run(PLAIN, control)
    until(events, RunStarted)
    assert next(events) == Waiting("paused")
    control.step()
    assert next(events).step == 0


def test_a_run_paused_for_more_than_the_limit_is_stopped(session, monkeypatch):
    monkeypatch.setattr("engine.serve.race.MAX_PAUSE", 0.02)
    events, control = begun(session)
    control.pause()
    end = until(events, RunFinished)
    assert (end.reason, end.metrics["positions"]) == ("stopped", 3)
    assert next(events, None) is None
    assert is_free(session)


def test_a_waiting_run_that_is_closed_leaves_the_queue(session):
    first, _ = begun(session)
    second, third = session.run(FAST), session.run(FAST)
    assert [next(second).ahead, next(third).ahead] == [1, 2]
    second.close()
    assert next(third).ahead == 1
    first.close()
    assert until(third, RunFinished).reason == "done"


def test_a_stop_ends_the_wait_for_the_models(session):
    events, running = begun(session)
    control = Control()
    control.stop()
    with pytest.raises(StoppedError):
        session.environment(PLAIN, control)
    running.stop()
    list(events)
    assert is_free(session)
    assert session.environment(PLAIN, Control())["threads"] == 1
