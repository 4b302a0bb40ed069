"""Group a fast stream into a limited number of batches per second."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

Item = TypeVar("Item")


def coalesce(
    items: Iterable[Item],
    max_hz: float,
    clock: Callable[[], float] = time.monotonic,
    at_once: Callable[[Item], bool] = lambda item: False,
) -> Iterator[list[Item]]:
    """Group `items` into at most `max_hz` batches per second. No item is lost.

    An item that goes out `at_once` ends its batch, whatever the time.
    """
    batch: list[Item] = []
    due = clock()
    for item in items:
        batch.append(item)
        now = clock()
        if now >= due or at_once(item):
            yield batch
            batch = []
            due = max(due + 1 / max_hz, clock() + 0.5 / max_hz)
    if batch:
        yield batch
