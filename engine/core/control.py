"""Control: pauses, steps and stops a run from another thread."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

LIFETIME_S = 6 * 3_600  # after which a run or a task that nobody used is dropped
MAX_PAUSE = 1_800.0  # seconds after which a paused run is stopped
STOPPED = 130  # exit status of a command that was stopped, as shells give it after Control-C


class StoppedError(Exception):
    """Somebody stopped the work while it waited."""


class Control:
    """The state of one run, which the run checks before every step. Thread-safe.

    `owner` names who started the run, for their share of the queue; empty if it is not known.
    """

    def __init__(self) -> None:
        self.owner = ""
        self._changed = threading.Condition()
        self._state = "running"
        self._granted_steps = 0

    @property
    def state(self) -> str:
        """`running`, `paused` or `stopped`; stopped is final."""
        return self._state

    def pause(self) -> None:
        """Pause before the next step."""
        self._set("paused")

    def resume(self) -> None:
        """Continue a paused run; steps that `step` granted and the run did not take are dropped."""
        with self._changed:
            self._granted_steps = 0
        self._set("running")

    def step(self) -> None:
        """Pause after one more step; calls add up."""
        with self._changed:
            self._granted_steps += 1
        self._set("paused")

    def stop(self) -> None:
        """End the run before the next step."""
        self._set("stopped")

    def take_turn(self, wait: float = 0.0) -> bool:
        """Whether the run may take its next step; waits up to `wait` seconds while it is paused.

        A step granted by `step` is used up.
        """
        with self._changed:
            self._changed.wait_for(lambda: self._state != "paused" or self._granted_steps > 0, wait)
            if self._state == "paused" and self._granted_steps:
                self._granted_steps -= 1
                return True
            return self._state == "running"

    def _set(self, state: str) -> None:
        with self._changed:
            if self._state != "stopped":
                self._state = state
            self._changed.notify_all()


@contextmanager
def stopped_by_interrupt(control: Control) -> Iterator[None]:
    """The first Control-C stops the run that is under way; a second one ends the process."""
    before = signal.getsignal(signal.SIGINT)

    def stop(number: int, frame: FrameType | None) -> None:
        signal.signal(signal.SIGINT, before)
        control.stop()

    signal.signal(signal.SIGINT, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


@contextmanager
def interrupted_later() -> Iterator[None]:
    """Control-C takes effect after the block, which writes files that belong together."""
    before, pressed = signal.getsignal(signal.SIGINT), threading.Event()
    signal.signal(signal.SIGINT, lambda number, frame: pressed.set())
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
    if pressed.is_set():
        signal.raise_signal(signal.SIGINT)
