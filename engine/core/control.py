"""Control: how a person holds, steps and stops a run, read by it before every step."""

from __future__ import annotations

import threading


class Control:
    """Thread-safe; one a run."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._state = "running"
        self._owed = 0

    @property
    def state(self) -> str:
        """`running`, `paused` or `stopped`; stopped is final."""
        return self._state

    def pause(self) -> None:
        """Hold before the next step."""
        self._set("paused")

    def resume(self) -> None:
        """Go on."""
        self._set("running")

    def step(self) -> None:
        """Hold, but for one step."""
        with self._changed:
            self._owed += 1
        self._set("paused")

    def stop(self) -> None:
        """End before the next step."""
        self._set("stopped")

    def take_turn(self, wait: float = 0.0) -> bool:
        """Whether the next step may be taken, waiting at most so many seconds for it.

        A step granted by `step` is used up.
        """
        with self._changed:
            self._changed.wait_for(lambda: self._state != "paused" or self._owed > 0, wait)
            if self._state == "paused" and self._owed:
                self._owed -= 1
                return True
            return self._state == "running"

    def _set(self, state: str) -> None:
        with self._changed:
            if self._state != "stopped":
                self._state = state
            self._changed.notify_all()
