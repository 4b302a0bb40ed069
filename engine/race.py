"""drive: lanes that take turns, so that what is seen live is the true race."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping

from engine.control import Control
from engine.events import Event, RunFinished, Waiting
from engine.lane import Lane
from engine.line import Line

HEARTBEAT = 0.2
MAX_PAUSE = 1_800.0  # seconds: whoever forgets a paused run does not keep its place for ever


class Turn:
    """A run's place in the line for the model lock, which it gives up while it is paused."""

    def __init__(self, line: Line) -> None:
        self._line, self._held = line, False

    @property
    def ahead(self) -> int:
        """How many runs come first."""
        return self._line.ahead(self)

    def acquire(self, wait: float) -> bool:
        """Whether the lock is held now, waiting at most so many seconds."""
        self._held = self._held or self._line.acquire(self, wait)
        return self._held

    def release(self) -> None:
        """Give the lock up, where it is held, or else the place in the line."""
        if self._held:
            self._held = False
            self._line.release()
        else:
            self._line.leave(self)


def claim(turn: Turn, control: Control) -> Iterator[Waiting]:
    """Beat until the lock is held or the run is stopped."""
    while not turn.acquire(HEARTBEAT) and control.state != "stopped":
        yield Waiting("lock", ahead=turn.ahead)


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
    while racing:
        first = next(iter(racing))
        for wait in hold(turn, control):
            yield first, wait
        name = min(racing, key=lambda lane: racing[lane].clock)
        stopped = control.state == "stopped"
        event = racing[name].finish("stopped") if stopped else racing[name].advance()
        if isinstance(event, RunFinished):
            del racing[name]
        yield name, event
