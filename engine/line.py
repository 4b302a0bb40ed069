"""Line: the runs that wait for the model lock, served in the order of their coming."""

from __future__ import annotations

import threading
import time
from collections import OrderedDict

PATIENCE = 2.0  # seconds that a run may keep the free lock waiting before the next one passes it
TICK = 0.05


class Line:
    """A lock whose waiters, any objects, keep their places between one try and the next.

    One that has not tried for PATIENCE seconds keeps its place, but those behind it may pass.
    """

    def __init__(self, lock: threading.Lock) -> None:
        self._lock, self._changed = lock, threading.Condition()
        self._last_try: OrderedDict[object, float] = OrderedDict()

    def acquire(self, who: object, wait: float) -> bool:
        """Whether `who` holds the lock now, trying for so many seconds; who joins at the end."""
        end = time.monotonic() + wait
        with self._changed:
            while True:
                now = time.monotonic()
                self._last_try[who] = now
                if self._first(now) is who and self._lock.acquire(blocking=False):
                    del self._last_try[who]
                    return True
                if now >= end:
                    return False
                self._changed.wait(min(end - now, TICK))

    def release(self) -> None:
        """Give the lock up."""
        self._lock.release()
        with self._changed:
            self._changed.notify_all()

    def leave(self, who: object) -> None:
        """Give a place up, where `who` has one."""
        with self._changed:
            self._last_try.pop(who, None)
            self._changed.notify_all()

    def ahead(self, who: object) -> int:
        """How many are before `who`: the one that holds the lock and those that wait longer."""
        with self._changed:
            waiting = list(self._last_try)
        return 1 + (waiting.index(who) if who in waiting else len(waiting))

    def _first(self, now: float) -> object:
        return next(who for who, last in self._last_try.items() if now - last <= PATIENCE)
