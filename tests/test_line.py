"""The line for the model lock: first come, first served, and nobody can stand in its way."""

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

from engine.line import PATIENCE, Line


def line():
    return Line(threading.Lock())


def test_the_lock_goes_to_who_came_first():
    lock = line()
    assert lock.acquire("a", 0)
    assert not lock.acquire("b", 0)
    assert not lock.acquire("c", 0)
    assert [lock.ahead(who) for who in "bcd"] == [1, 2, 3]
    lock.release()
    assert not lock.acquire("c", 0)
    assert lock.acquire("b", 0)
    lock.release()
    assert lock.acquire("c", 0)


def test_many_threads_are_served_in_the_order_of_their_coming():
    lock, served = line(), []
    lock.acquire("first", 0)

    def wait(number):
        while not lock.acquire(number, 0.01):
            pass
        served.append(number)
        lock.release()

    with ThreadPoolExecutor(20) as pool:
        for number in range(20):
            pool.submit(wait, number)
            while lock.ahead(number) != number + 1:
                time.sleep(0.001)
        lock.release()
    assert served == list(range(20))


def test_who_leaves_gives_the_place_up():
    lock = line()
    lock.acquire("a", 0)
    lock.acquire("b", 0)
    lock.acquire("c", 0)
    lock.leave("b")
    lock.release()
    assert lock.acquire("c", 0)


def test_who_does_not_come_back_is_passed_and_keeps_the_place(monkeypatch):
    lock, now = line(), [0.0]
    monkeypatch.setattr("engine.line.time", SimpleNamespace(monotonic=lambda: now[0]))
    lock.acquire("a", 0)
    lock.acquire("gone", 0)
    now[0] = PATIENCE / 2
    lock.acquire("c", 0)
    lock.release()
    assert not lock.acquire("c", 0)
    now[0] = PATIENCE * 1.1
    assert lock.acquire("c", 0)
    assert lock.ahead("gone") == 1
