"""Race: lanes that share the models' lock and take turns step by step."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Generator, Iterator, Mapping
from contextlib import contextmanager
from typing import TypeVar

from engine.core.control import MAX_PAUSE, Control, StoppedError
from engine.core.events import Event, RunFinished, Waiting
from engine.serve.fair_queue import FairQueue, RunLock
from engine.serve.lane import AnyLane

T = TypeVar("T")
HEARTBEAT = 0.2  # seconds between Waiting events


def wait_for_lock(lock: RunLock, control: Control) -> Iterator[Waiting]:
    """Yield Waiting events until the lock is held or the run is stopped."""
    while not lock.acquire(HEARTBEAT) and control.state != "stopped":
        yield lock.waiting()


@contextmanager
def without_runs(queue: FairQueue, control: Control | None = None) -> Iterator[None]:
    """Waits until no run computes, and lets none begin within.

    Raises QueueFullError if too many wait already, StoppedError if `control` is stopped before.
    """
    control = control or Control()
    queue.check_room(control.owner)
    lock = RunLock(queue, owner=control.owner)
    try:
        deque(wait_for_lock(lock, control), maxlen=0)
        if control.state == "stopped":
            raise StoppedError
        yield
    finally:
        lock.release()


def wait_while_paused(lock: RunLock, control: Control) -> Iterator[Waiting]:
    """Yield Waiting events while the run is paused, the lock released, and until it is held again.

    A run that is paused for more than MAX_PAUSE is stopped.
    """
    if control.state == "paused" and not control.take_turn():
        lock.release()
        deadline = time.monotonic() + MAX_PAUSE
        yield Waiting("paused")
        while not control.take_turn(HEARTBEAT) and control.state != "stopped":
            if time.monotonic() > deadline:
                control.stop()
            yield Waiting("paused")
    yield from wait_for_lock(lock, control)


def tagged(name: str, events: Generator[Waiting, None, T]) -> Generator[tuple[str, Event], None, T]:
    """The events with the name of their lane; returns the generator's value."""
    while True:
        try:
            yield name, next(events)
        except StopIteration as end:
            return end.value


def run_lanes(
    lanes: Mapping[str, AnyLane], lock: RunLock, control: Control
) -> Iterator[tuple[str, Event]]:
    """Run lanes to their ends; the lane with the least engine time takes the next step.

    Only one lane computes at a time, so each runs at its own speed.
    """
    running = dict(lanes)
    lock.start_clock()
    while running:
        first = next(iter(running))
        for waiting in wait_while_paused(lock, control):
            yield first, waiting
        name = min(running, key=lambda lane: running[lane].clock)
        stopped = control.state == "stopped"
        event = running[name].finish("stopped") if stopped else running[name].advance()
        if isinstance(event, RunFinished):
            del running[name]
        else:
            lock.done += 1
        yield name, event
