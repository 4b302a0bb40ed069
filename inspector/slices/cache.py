"""SliceCache: encoded slices, bounded in bytes, the least recently used dropped first."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Hashable
from typing import NamedTuple

CACHE_BYTES = 32_000_000


class Body(NamedTuple):
    """The bytes of an answer, and the value of its Content-Encoding header: gzip or empty."""

    data: bytes
    coding: str = ""


class SliceCache:
    """Answers by key. One of more than a quarter of `budget` bytes is not kept."""

    def __init__(self, budget: int = CACHE_BYTES) -> None:
        self._budget, self._held = budget, 0
        self._values: OrderedDict[Hashable, Body] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, key: Hashable) -> Body | None:
        """The answer of a key, or None."""
        with self._lock:
            if key in self._values:
                self._values.move_to_end(key)
            return self._values.get(key)

    def put(self, key: Hashable, body: Body) -> None:
        """Add an answer, and drop the least recently used ones beyond the budget."""
        if len(body.data) > self._budget // 4:
            return
        with self._lock:
            self._held += len(body.data) - len(self._values.pop(key, Body(b"")).data)
            self._values[key] = body
            while self._held > self._budget:
                self._held -= len(self._values.popitem(last=False)[1].data)

    @property
    def nbytes(self) -> int:
        """Bytes of all answers."""
        return self._held
