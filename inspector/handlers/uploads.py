"""The uploaded files that were not read yet; a file is deleted when it is read."""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

FORGOTTEN_S = 600.0
MOST_FILES = 5_000
MOST_UPLOADS = 100  # of one file


class UnreadUploads:
    """The uploads of each file that were not read yet, by the times of their arrival.

    Gradio names an upload by its content, so that visitors who upload the same file share its path.
    An upload that nobody has read after FORGOTTEN_S seconds is not waited for, nor are the oldest
    beyond MOST_UPLOADS of a file and those of the oldest files beyond MOST_FILES.
    """

    def __init__(self) -> None:
        self._times: OrderedDict[Path, list[float]] = OrderedDict()  # the latest upload last
        self._lock = threading.Lock()

    def add(self, paths: Iterable[str | Path]) -> None:
        """Note uploads that have arrived."""
        now = time.monotonic()
        oldest = now - FORGOTTEN_S
        with self._lock:
            for path in paths:
                file = Path(path).resolve()
                self._times[file] = [*self._times.pop(file, []), now][-MOST_UPLOADS:]
            while self._times and (len(self._times) > MOST_FILES or self._latest() <= oldest):
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

    def _latest(self) -> float:
        """The time of the latest upload of the first file, which was uploaded longest ago."""
        return next(iter(self._times.values()))[-1]
