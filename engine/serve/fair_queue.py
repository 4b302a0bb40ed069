"""FairQueue: the lock on the models, granted in order of arrival, with an estimate of the wait."""

from __future__ import annotations

import math
import threading
import time

MAX_WAITING = 24
ABSENT_AFTER = 5.0  # seconds since a ticket's last acquire after which others pass it


class Ticket:
    """A run's position in a FairQueue, and its progress.

    `forwards` is the most forwards that the run needs, `done` the number computed so far.
    """

    def __init__(self, forwards: int = 0) -> None:
        self.forwards, self.done = forwards, 0
        self.last_seen, self._started = 0.0, 0.0

    def start_clock(self) -> None:
        """Start timing: the next forward is the first."""
        self._started = time.monotonic()

    @property
    def seconds_per_forward(self) -> float:
        """Mean seconds a forward; 0 before the first."""
        return (time.monotonic() - self._started) / self.done if self.done else 0.0

    @property
    def forwards_left(self) -> int:
        """The most forwards that are still to be computed."""
        return max(self.forwards - self.done, 0)


class FairQueue:
    """A lock that is granted in order of arrival; thread-safe."""

    def __init__(self, max_waiting: int = MAX_WAITING) -> None:
        self._changed = threading.Condition()
        self._holder: Ticket | None = None
        self._waiting: list[Ticket] = []
        self._max_waiting, self._last_pace = max_waiting, 0.0

    @property
    def full(self) -> bool:
        """Whether the maximum number of tickets waits."""
        return len(self._waiting) >= self._max_waiting

    @property
    def free(self) -> bool:
        """Whether no ticket holds the lock or waits for it."""
        return self._holder is None and not self._waiting

    def acquire(self, ticket: Ticket, wait: float) -> bool:
        """Wait up to `wait` seconds for the lock; returns whether the ticket holds it.

        A ticket that does not get it keeps its position until it is released.
        """
        with self._changed:
            if self._holder is ticket:
                return True
            if ticket not in self._waiting:
                self._waiting.append(ticket)
            ticket.last_seen = math.inf
            if self._changed.wait_for(lambda: self._next() is ticket, wait):
                self._waiting.remove(ticket)
                self._holder = ticket
            ticket.last_seen = time.monotonic()
            return self._holder is ticket

    def release(self, ticket: Ticket) -> None:
        """Release the lock, or the position in the queue."""
        with self._changed:
            if self._holder is ticket:
                self._holder, self._last_pace = None, ticket.seconds_per_forward or self._last_pace
            elif ticket in self._waiting:
                self._waiting.remove(ticket)
            self._changed.notify_all()

    def estimate(self, ticket: Ticket) -> tuple[int, float | None]:
        """Number of tickets ahead of one, and at most how many seconds they need, roughly.

        The seconds are computed from the pace of the holder, or else of the run before it; None
        before the first forward of all.
        """
        with self._changed:
            if ticket not in self._waiting:
                return 0, None
            ahead = self._waiting[: self._waiting.index(ticket)]
            if self._holder is not None:
                ahead = [self._holder, *ahead]
            pace = self._holder.seconds_per_forward if self._holder is not None else 0
            pace = pace or self._last_pace
            return len(ahead), pace * sum(one.forwards_left for one in ahead) if pace else None

    def _next(self) -> Ticket | None:
        """The ticket that gets the lock next; None while it is held."""
        now = time.monotonic()
        present = (one for one in self._waiting if now - one.last_seen < ABSENT_AFTER)
        return next(present, None) if self._holder is None else None
