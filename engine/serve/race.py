"""drive: lanes that take turns, so that what is seen live is the true race."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping

from engine.core.control import Control
from engine.core.events import Event, RunFinished, Waiting
from engine.serve.fair_queue import FairQueue, Ticket
from engine.serve.lane import Lane

HEARTBEAT = 0.2
MAX_PAUSE = 1_800.0  # seconds: whoever forgets a paused run does not keep its place for ever


class Turn:
    """A run's turn at the models: the line's lock, held by one run at a time.

    `forwards` is the most that the run needs. It is given up while the run is paused.
    """

    def __init__(self, line: FairQueue, forwards: int = 0) -> None:
        self._queue, self._place, self._held = line, Ticket(forwards), False

    def acquire(self, wait: float) -> bool:
        """Whether it is this run's turn, standing in line at most so many seconds more for it."""
        if not self._held and self._queue.take(self._place, wait):
            self._held = True
            self._place.start()
        return self._held

    def release(self) -> None:
        """Give the lock up, or the place in line; who comes back stands at its end."""
        self._held = False
        self._queue.leave(self._place)
        self._place = Ticket(self._place.left)

    def start(self) -> None:
        """The first forward comes next: what went before is not in the run's pace."""
        self._place.start()

    def count(self) -> None:
        """A forward has been made."""
        self._place.done += 1

    def waiting(self) -> Waiting:
        """How many runs are before this one, and about how long they will take."""
        ahead, seconds = self._queue.wait_of(self._place)
        return Waiting("lock", ahead=ahead, seconds=seconds)


def claim(turn: Turn, control: Control) -> Iterator[Waiting]:
    """Beat until the lock is held or the run is stopped."""
    while not turn.acquire(HEARTBEAT) and control.state != "stopped":
        yield turn.waiting()


def hold(turn: Turn, control: Control) -> Iterator[Waiting]:
    """Beat while the run is paused, the lock given up, and until the lock is held again.

    A run that is paused for longer than MAX_PAUSE is stopped.
    """
    if control.state == "paused" and not control.take_turn():
        turn.release()
        until = time.monotonic() + MAX_PAUSE
        yield Waiting("paused")
        while not control.take_turn(HEARTBEAT) and control.state != "stopped":
            if time.monotonic() > until:
                control.stop()
            yield Waiting("paused")
    yield from claim(turn, control)


def drive(lanes: Mapping[str, Lane], turn: Turn, control: Control) -> Iterator[tuple[str, Event]]:
    """Run lanes to their ends; at any moment the one whose clock is behind takes the next step.

    Lanes never compute at the same time. While paused the lock is free and `Waiting` beats.
    """
    racing = dict(lanes)
    turn.start()
    while racing:
        first = next(iter(racing))
        for wait in hold(turn, control):
            yield first, wait
        name = min(racing, key=lambda lane: racing[lane].clock)
        stopped = control.state == "stopped"
        event = racing[name].finish("stopped") if stopped else racing[name].advance()
        if isinstance(event, RunFinished):
            del racing[name]
        else:
            turn.count()
        yield name, event
