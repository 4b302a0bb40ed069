"""FairQueue: first come, first served, with the number of runs ahead and an estimate."""

import threading

import pytest

from engine.core.control import Control
from engine.core.events import QueueFullError, RunFinished, StepEvent, Waiting
from engine.serve.fair_queue import FairQueue, RunLock
from engine.serve.session import Session
from tests.engine.serve.test_pause_and_stop import begun, fast_beats, is_free, until  # noqa: F401
from tests.engine.serve.test_race import FAST, PLAIN


@pytest.fixture
def now(monkeypatch):
    """The queue's clock, which only the test moves."""
    now = [100.0]
    monkeypatch.setattr("engine.serve.fair_queue.time.monotonic", lambda: now[0])
    return now


def with_pace(run, forwards, seconds):
    """A run that has computed so many forwards in so many seconds."""
    run.start_clock()
    run.done, run._started = forwards, run._started - seconds
    return run


def test_who_ends_the_app_waits_until_no_run_holds_the_lock():
    queue = FairQueue()
    run, last = RunLock(queue), RunLock(queue)
    assert last.acquire(0)
    last.release()
    assert run.acquire(0)
    assert not last.acquire(0.01)
    later = threading.Timer(0.05, run.release)
    later.start()
    assert last.acquire(30)
    later.join()


def test_runs_are_served_in_order_of_arrival():
    queue, served = FairQueue(), []
    runs = [RunLock(queue) for _ in range(6)]
    assert runs[0].acquire(0)
    queued = [threading.Event() for _ in runs]

    def visit(number):
        runs[number].acquire(0)
        queued[number].set()
        assert runs[number].acquire(30)
        served.append(number)
        runs[number].release()

    threads = [threading.Thread(target=visit, args=(i,)) for i in range(1, 6)]
    for i, thread in enumerate(threads, start=1):
        thread.start()
        assert queued[i].wait(30)
    assert queue.estimate(runs[5]) == (5, None)
    runs[0].release()
    for thread in threads:
        thread.join(30)
    assert served == [1, 2, 3, 4, 5]
    assert queue._holder is None
    assert not queue._waiting


@pytest.mark.usefixtures("now")
def test_the_estimate_counts_the_forwards_left_of_the_runs_ahead():
    queue = FairQueue()
    first, second, third = (RunLock(queue, forwards) for forwards in (100, 50, 10))
    for run in (first, second, third):
        run.acquire(0)
    assert queue.estimate(second) == (1, None)
    with_pace(first, 20, 4.0)
    assert queue.estimate(second) == (1, pytest.approx(80 * 0.2, rel=0.05))
    assert queue.estimate(third) == (2, pytest.approx((80 + 50) * 0.2, rel=0.05))
    assert queue.estimate(first) == (0, None)
    first.release()
    assert second.acquire(0)
    ahead, seconds = queue.estimate(third)  # at the pace of the run before the holder
    assert (ahead, seconds) == (1, pytest.approx(50 * 0.2, rel=0.05))


def test_a_run_that_leaves_the_queue_moves_the_others_up():
    queue = FairQueue()
    runs = [RunLock(queue) for _ in range(3)]
    for run in runs:
        run.acquire(0)
    runs[1].release()
    assert queue.estimate(runs[2])[0] == 1
    runs[0].release()
    assert runs[2].acquire(0)


def test_an_absent_run_is_passed_and_keeps_its_position(monkeypatch):
    queue = FairQueue()
    first, absent, last = (RunLock(queue) for _ in range(3))
    for run in (first, absent, last):
        run.acquire(0)
    first.release()
    assert not last.acquire(0)  # the run ahead was seen just now
    monkeypatch.setattr("engine.serve.fair_queue.ABSENT_AFTER", 0.0)
    assert last.acquire(0)
    monkeypatch.undo()
    assert not absent.acquire(0)
    last.release()
    assert absent.acquire(0)


def test_a_pause_does_not_count_in_the_pace(now):
    run = RunLock(FairQueue(), 10)
    run.acquire(0)
    now[0] += 1
    run.done += 1
    run.release()
    now[0] += 50
    run.acquire(0)
    now[0] += 2
    run.done += 1
    assert run.seconds_per_forward == 2
    assert run.forwards_left == 8


def test_a_waiting_run_reports_its_position_and_an_estimate(session):
    first, _ = begun(session, steps=4)
    waits = [next(session.run(FAST)), *(next(run) for run in [session.run(PLAIN)])]
    assert [wait.state for wait in waits] == ["lock", "lock"]
    assert all(isinstance(wait, Waiting) and wait.seconds > 0 for wait in waits)
    assert until(first, RunFinished).reason == "done"


def test_the_runs_of_a_session_are_served_in_order(session):
    first, _ = begun(session)
    second, third = session.run(FAST), session.run(FAST)
    assert (next(second).ahead, next(third).ahead) == (1, 2)
    first.close()
    assert next(third).ahead == 1
    until(second, StepEvent)
    second.close()
    assert list(third)[-1].reason == "done"
    assert is_free(session)


def owned(owner):
    """A control of a run that somebody started."""
    control = Control()
    control.owner = owner
    return control


def test_the_runs_of_one_owner_leave_room_for_others(session, monkeypatch):
    monkeypatch.setattr("engine.serve.fair_queue.MOST_OF_AN_OWNER", 1)
    first, _ = begun(session)
    second = session.run(FAST, owned("me"))
    assert next(second).ahead == 1
    with pytest.raises(QueueFullError, match="waiting from your network address; try again"):
        next(session.run(FAST, owned("me")))
    others = [session.run(FAST, owned(owner)) for owner in ("you", "", "")]
    assert [next(run).ahead for run in others] == [2, 3, 4]  # who is not known has no share
    for run in (first, second, *others):
        run.close()
    assert is_free(session)


def test_who_waits_for_the_models_without_a_run_needs_a_place_too(session, monkeypatch):
    """As a search for settings, before its first run."""
    monkeypatch.setattr("engine.serve.fair_queue.MOST_OF_AN_OWNER", 1)
    first, _ = begun(session)
    second = session.run(FAST, owned("me"))
    next(second)
    with pytest.raises(QueueFullError, match="from your network address"):
        session.environment(PLAIN, owned("me"))
    for run in (first, second):
        run.close()
    assert session.environment(PLAIN, owned("me"))["threads"] == 1


def test_a_full_queue_refuses_a_run_before_any_computation(checkpoint, monkeypatch):
    monkeypatch.setattr("engine.serve.fair_queue.MAX_WAITING", 1)
    session = Session({"micro": checkpoint})
    first, _ = begun(session)
    second = session.run(FAST)
    assert next(second).ahead == 1
    with pytest.raises(ValueError, match=r"queue: .* recorded runs meanwhile"):
        next(session.run(FAST, Control()))
    second.close()
    assert next(session.run(FAST)).ahead == 1
    first.close()
