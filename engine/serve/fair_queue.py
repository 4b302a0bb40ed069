"""Line: the model lock, fair: who came first is next, and each knows how many are before it."""

from __future__ import annotations

import math
import threading
import time

PLACES = 24
ABSENT = 5.0  # seconds: who has not asked for so long is passed over until it asks again


class Ticket:
    """Somebody in a line; `forwards` is the most that its runs need, `done` those made so far."""

    def __init__(self, forwards: int = 0) -> None:
        self.forwards, self.done = forwards, 0
        self.asked, self._began = 0.0, 0.0

    def start(self) -> None:
        """The next forward is the first: start the clock."""
        self._began = time.monotonic()

    @property
    def pace(self) -> float:
        """Seconds a forward; 0 where none was made."""
        return (time.monotonic() - self._began) / self.done if self.done else 0.0

    @property
    def left(self) -> int:
        """Most forwards that are still to be made."""
        return max(self.forwards - self.done, 0)


class FairQueue:
    """A lock that is served in order of arrival; thread-safe."""

    def __init__(self, places: int = PLACES) -> None:
        self._changed = threading.Condition()
        self._served: Ticket | None = None
        self._waiting: list[Ticket] = []
        self._places, self._pace = places, 0.0

    @property
    def full(self) -> bool:
        """Whether as many wait as may."""
        return len(self._waiting) >= self._places

    @property
    def free(self) -> bool:
        """Whether nobody holds the lock or waits for it."""
        return self._served is None and not self._waiting

    def take(self, place: Ticket, wait: float) -> bool:
        """Whether the lock is this place's, standing in line for at most so many seconds more.

        Who is not served keeps its place until it leaves.
        """
        with self._changed:
            if self._served is place:
                return True
            if place not in self._waiting:
                self._waiting.append(place)
            place.asked = math.inf
            if self._changed.wait_for(lambda: self._next() is place, wait):
                self._waiting.remove(place)
                self._served = place
            place.asked = time.monotonic()
            return self._served is place

    def leave(self, place: Ticket) -> None:
        """Give the lock up, or the place in line."""
        with self._changed:
            if self._served is place:
                self._served, self._pace = None, place.pace or self._pace
            elif place in self._waiting:
                self._waiting.remove(place)
            self._changed.notify_all()

    def wait_of(self, place: Ticket) -> tuple[int, float | None]:
        """How many are before a place, and about how many seconds they need at most.

        The seconds are of the pace of the run that is served, or of the last one, and None where
        no forward was made yet.
        """
        with self._changed:
            if place not in self._waiting:
                return 0, None
            before = self._waiting[: self._waiting.index(place)]
            if self._served is not None:
                before = [self._served, *before]
            pace = (self._served.pace if self._served is not None else 0) or self._pace
            return len(before), pace * sum(one.left for one in before) if pace else None

    def _next(self) -> Ticket | None:
        """Who is served next, if the lock is free."""
        now = time.monotonic()
        present = (place for place in self._waiting if now - place.asked < ABSENT)
        return next(present, None) if self._served is None else None
