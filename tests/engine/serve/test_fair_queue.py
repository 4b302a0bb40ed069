"""The line at the model lock: first come, first served, with a place and an estimate."""

import threading
import time

import pytest

from engine.core.control import Control
from engine.core.events import RunFinished, StepEvent, Waiting
from engine.serve.fair_queue import FairQueue, Ticket
from engine.serve.race import Turn
from engine.serve.session import Session
from tests.engine.serve.test_race import FAST, PLAIN
from tests.engine.serve.test_turns import begun, fast_beats, is_free, until  # noqa: F401


def at_pace(place, forwards, seconds):
    """A place that has made so many forwards in so many seconds."""
    place.start()
    place.done, place._began = forwards, place._began - seconds
    return place


def test_who_came_first_is_served_first():
    line, places, served = FairQueue(), [Ticket() for _ in range(6)], []
    assert line.take(places[0], 0)
    gate = [threading.Event() for _ in places]

    def visit(number):
        line.take(places[number], 0)
        gate[number].set()
        assert line.take(places[number], 30)
        served.append(number)
        line.leave(places[number])

    threads = [threading.Thread(target=visit, args=(i,)) for i in range(1, 6)]
    for i, thread in enumerate(threads, start=1):
        thread.start()
        assert gate[i].wait(30)
    assert line.wait_of(places[5]) == (5, None)
    line.leave(places[0])
    for thread in threads:
        thread.join(30)
    assert served == [1, 2, 3, 4, 5]
    assert line.free


def test_the_estimate_is_what_those_before_have_left():
    line, first, second, third = FairQueue(), Ticket(100), Ticket(50), Ticket(10)
    for place in (first, second, third):
        line.take(place, 0)
    assert line.wait_of(second) == (1, None)
    at_pace(first, 20, 4.0)
    assert line.wait_of(second) == (1, pytest.approx(80 * 0.2, rel=0.05))
    assert line.wait_of(third) == (2, pytest.approx((80 + 50) * 0.2, rel=0.05))
    assert line.wait_of(first) == (0, None)
    line.leave(first)
    assert line.take(second, 0)
    ahead, seconds = line.wait_of(third)  # by the pace of the run before, until this one has one
    assert (ahead, seconds) == (1, pytest.approx(50 * 0.2, rel=0.05))


def test_who_leaves_the_line_lets_the_others_up():
    line, places = FairQueue(), [Ticket(), Ticket(), Ticket()]
    for place in places:
        line.take(place, 0)
    line.leave(places[1])
    assert line.wait_of(places[2])[0] == 1
    line.leave(places[0])
    assert line.take(places[2], 0)


def test_who_no_longer_asks_is_passed_over_and_keeps_the_place(monkeypatch):
    line, first, gone, last = FairQueue(), Ticket(), Ticket(), Ticket()
    for place in (first, gone, last):
        line.take(place, 0)
    line.leave(first)
    assert not line.take(last, 0)  # the one before asked just now
    monkeypatch.setattr("engine.serve.fair_queue.ABSENT", 0.0)
    assert line.take(last, 0)
    monkeypatch.undo()
    assert not line.take(gone, 0)
    line.leave(last)
    assert line.take(gone, 0)


def test_a_pause_is_not_in_the_pace(monkeypatch):
    line = FairQueue()
    turn = Turn(line, 10)
    turn.acquire(0)
    turn.count()
    turn.release()
    time.sleep(0.05)
    turn.acquire(0)
    turn.count()
    assert line._served.pace < 0.04
    assert line._served.left == 8


def test_a_run_that_waits_is_told_its_place_and_an_estimate(session):
    first, _ = begun(session, steps=4)
    waits = [next(session.run(FAST)), *(next(run) for run in [session.run(PLAIN)])]
    assert [wait.state for wait in waits] == ["lock", "lock"]
    assert all(isinstance(wait, Waiting) and wait.seconds > 0 for wait in waits)
    assert until(first, RunFinished).reason == "done"


def test_the_runs_of_a_session_go_in_order(session):
    first, _ = begun(session)
    second, third = session.run(FAST), session.run(FAST)
    assert (next(second).ahead, next(third).ahead) == (1, 2)
    first.close()
    assert next(third).ahead == 1
    until(second, StepEvent)
    second.close()
    assert list(third)[-1].reason == "done"
    assert is_free(session)


def test_a_line_that_is_full_refuses_before_anything_is_computed(checkpoint, monkeypatch):
    session = Session({"micro": checkpoint})
    monkeypatch.setattr(session, "_line", FairQueue(places=1))
    first, _ = begun(session)
    second = session.run(FAST)
    assert next(second).ahead == 1
    with pytest.raises(ValueError, match=r"queue: .* recorded runs meanwhile"):
        next(session.run(FAST, Control()))
    second.close()
    assert next(session.run(FAST)).ahead == 1
    first.close()
