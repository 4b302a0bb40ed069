"""The uploaded files that were not read yet; a file is deleted when it is read."""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

FORGOTTEN_S = 600.0


class UnreadUploads:
    """The uploads of each file that were not read yet, by the times of their arrival.

    Gradio names an upload by its content, so that visitors who upload the same file share its path.
    An upload that nobody has read after FORGOTTEN_S seconds is not waited for.
    """

    def __init__(self) -> None:
        self._times: OrderedDict[Path, list[float]] = OrderedDict()  # the latest upload last
        self._lock = threading.Lock()

    def add(self, paths: Iterable[str | Path]) -> None:
        """Note uploads that have arrived."""
        now = time.monotonic()
        with self._lock:
            for path in paths:
                self._times.setdefault(Path(path).resolve(), []).append(now)
                self._times.move_to_end(Path(path).resolve())
            while self._times and next(iter(self._times.values()))[-1] <= now - FORGOTTEN_S:
                self._times.popitem(last=False)

    def read(self, path: Path, most: int) -> bytes:
        """The bytes of a file, at most one more than `most`; `delete`s it. Raises OSError."""
        with path.open("rb") as file:
            data = file.read(most + 1)
        self.delete(path)
        return data

    def delete(self, path: Path) -> None:
        """Delete a file that was read, unless another upload of it is still to be read."""
        path, oldest = path.resolve(), time.monotonic() - FORGOTTEN_S
        with self._lock:
            times = self._times.pop(path, [])
            left = [then for then in times[1:] if then > oldest]
            if left:
                self._times[path] = left
            else:
                with suppress(OSError):
                    path.unlink()
