"""The lock on the models, granted in order of arrival, with an estimate of the wait."""

from __future__ import annotations

import math
import threading
import time

from engine.core.events import QueueFullError, Waiting

MAX_WAITING, MOST_OF_AN_OWNER = 48, 24  # runs; a class behind one address is one owner
ABSENT_AFTER = 5.0  # seconds since a run's last `acquire` after which others pass it
QUEUE_FULL = (
    "queue: too many runs are waiting{}; try again in a minute, and watch the recorded runs "
    "meanwhile"
)


class RunLock:
    """A run's lock on the models, granted by a FairQueue, and the progress of the run.

    The run holds it (`held`) while it computes, not while it is paused. `forwards` is the most
    forwards that it needs, `done` the number computed so far, `owner` that of the run's Control.
    """

    def __init__(self, queue: FairQueue, forwards: int = 0, owner: str = "") -> None:
        self.forwards, self.done, self.last_seen = forwards, 0, 0.0
        self.owner = owner
        self._queue, self.held, self._started = queue, False, 0.0

    @property
    def seconds_per_forward(self) -> float:
        """Mean seconds a forward; 0 before the first."""
        return (time.monotonic() - self._started) / self.done if self.done else 0.0

    @property
    def forwards_left(self) -> int:
        """The most forwards that are still to be computed."""
        return max(self.forwards - self.done, 0)

    def acquire(self, wait: float) -> bool:
        """Wait up to `wait` seconds for the lock; returns whether it is held.

        A run that does not get it keeps its position in the queue until `release`.
        """
        if not self.held and self._queue.acquire(self, wait):
            self.held = True
            self.start_clock()
        return self.held

    def release(self) -> None:
        """Release the lock, or leave the queue; a later `acquire` queues at the end."""
        self.held = False
        self._queue.release(self)
        self.forwards, self.done = self.forwards_left, 0

    def start_clock(self) -> None:
        """Start timing: the next forward is the first."""
        self._started = time.monotonic()

    def waiting(self) -> Waiting:
        """An event with the number of runs ahead and the estimated wait."""
        ahead, seconds = self._queue.estimate(self)
        return Waiting("lock", ahead=ahead, seconds=seconds)


class FairQueue:
    """Grants the lock to one RunLock at a time, in order of arrival; thread-safe."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._holder: RunLock | None = None
        self._waiting: list[RunLock] = []
        self._last_pace = 0.0

    def check_room(self, owner: str) -> None:
        """Raise QueueFullError if no more runs may wait, or no more of a known owner."""
        waiting = [run.owner for run in list(self._waiting)]
        if len(waiting) >= MAX_WAITING:
            raise QueueFullError(QUEUE_FULL.format(""))
        if owner and waiting.count(owner) >= MOST_OF_AN_OWNER:
            raise QueueFullError(QUEUE_FULL.format(" from your network address"))

    def acquire(self, run: RunLock, wait: float) -> bool:
        """Queue a run and wait up to `wait` seconds; returns whether it gets the lock."""
        with self._changed:
            if run not in self._waiting:
                self._waiting.append(run)
            run.last_seen = math.inf
            if self._changed.wait_for(lambda: self._next() is run, wait):
                self._waiting.remove(run)
                self._holder = run
            run.last_seen = time.monotonic()
            return self._holder is run

    def release(self, run: RunLock) -> None:
        """Take the lock from a run, or remove it from the queue."""
        with self._changed:
            if self._holder is run:
                self._holder, self._last_pace = None, run.seconds_per_forward or self._last_pace
            elif run in self._waiting:
                self._waiting.remove(run)
            self._changed.notify_all()

    def estimate(self, run: RunLock) -> tuple[int, float | None]:
        """Number of runs ahead of a waiting one, and the most seconds that they need.

        The seconds are computed from the pace of the holder, or else of the run before it; None
        before the first forward of all.
        """
        with self._changed:
            if run not in self._waiting:
                return 0, None
            ahead = self._waiting[: self._waiting.index(run)]
            pace = self._last_pace
            if self._holder is not None:
                ahead = [self._holder, *ahead]
                pace = self._holder.seconds_per_forward or pace
            return len(ahead), pace * sum(one.forwards_left for one in ahead) if pace else None

    def _next(self) -> RunLock | None:
        """The run that gets the lock next; None while it is held."""
        now = time.monotonic()
        present = (run for run in self._waiting if now - run.last_seen < ABSENT_AFTER)
        return next(present, None) if self._holder is None else None
