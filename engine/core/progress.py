"""progress: what takes long before a run, told a few times a second."""

from __future__ import annotations

import math
import time
from collections.abc import Generator
from contextlib import closing
from typing import Any, Protocol, TypeVar

from engine.core.control import Control
from engine.core.events import Waiting

T = TypeVar("T")
BEAT = 0.2  # seconds between two words


class Step(Protocol):
    """How far something is, in bytes; `total` is 0 where it is not known yet."""

    @property
    def done(self) -> int:
        """Bytes that are there."""

    @property
    def total(self) -> int:
        """Bytes in all."""


def run_to_end(steps: Generator[Any, None, T]) -> T:
    """The value of `steps`, without a word on the way."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            value: T = end.value
            return value


def with_progress(
    steps: Generator[Step, None, T], state: str, what: str, control: Control, beat: float = BEAT
) -> Generator[Waiting, None, T | None]:
    """The value of `steps`, told as Waiting events at most every `beat` seconds.

    A run that is stopped goes no further than the next step; the value is None then.
    """
    last = -math.inf
    with closing(steps):
        while control.state != "stopped":
            try:
                step = next(steps)
            except StopIteration as end:
                return end.value
            if time.monotonic() - last >= beat:
                last = time.monotonic()
                yield Waiting(state, step.done, step.total, what)
    return None
