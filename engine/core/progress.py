"""Progress of long work before a run, such as a download: generators of `Progress`."""

from __future__ import annotations

import math
import time
from collections.abc import Generator
from contextlib import closing
from dataclasses import dataclass
from typing import Any, Literal, TypeVar

from engine.core.control import Control
from engine.core.events import Waiting

T = TypeVar("T")
MIN_INTERVAL = 0.2  # seconds between two Waiting events


@dataclass(frozen=True)
class Progress:
    """Bytes, forwards or layers done, and those in total (0 if not known yet)."""

    done: int
    total: int
    unit: Literal["bytes", "forwards", "layers"] = "bytes"


def run_to_end(steps: Generator[Any, None, T]) -> T:
    """Exhaust a generator and return its value."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            value: T = end.value
            return value


def with_progress(
    steps: Generator[Progress, None, T],
    state: str,
    what: str,
    control: Control,
    interval: float = MIN_INTERVAL,
) -> Generator[Waiting, None, T | None]:
    """Yield the progress of `steps` as Waiting events, and return its value.

    Events are at least `interval` seconds apart. If the run is stopped, `steps` is closed and the
    value is None.
    """
    last = -math.inf
    with closing(steps):
        while control.state != "stopped":
            try:
                step = next(steps)
            except StopIteration as end:
                return end.value
            if time.monotonic() - last >= interval:
                last = time.monotonic()
                yield Waiting(state, step.done, step.total, what, unit=step.unit)
    return None
