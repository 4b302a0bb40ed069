"""The folder of uploads: the bytes in it, and the removal of stale files.

Gradio serves files of this folder alone, so that exports lie there too, in a folder EXPORTS.
"""

from __future__ import annotations

import asyncio
import math
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

STALE_S, CROWDED_S = 3_600, 300  # seconds; the second while the folder is full
REMEMBERED_S = 5.0
CLOCK_S = 1.0  # by which the clock of the file system may be behind
EXPORTS = "exports-"  # start of the name of a folder of exports; its files are no uploads
OWN_NAME = "driftscope-uploads"  # of the folder that the app gives Gradio unless one is set


class UploadFolder:
    """The bytes in the upload folder, counted in a thread and remembered for REMEMBERED_S seconds.

    Bytes that arrive after a count are added to it. A deletion shows in the next count only.
    """

    def __init__(self) -> None:
        self._lock = asyncio.Lock()
        self._counted, self._before = 0, -REMEMBERED_S
        self._arrived = 0
        self._begun: list[float] = []  # when the uploads that go on began

    async def held(self, folder: Path, most: int) -> int:
        """The bytes in the folder. A count removes its stale files and blocks no other request.

        In a folder of more than `most` bytes files are stale sooner: what is uploaded is read soon,
        and one visitor's files would keep those of others out for an hour.
        """
        async with self._lock:
            if time.monotonic() - self._before >= REMEMBERED_S:
                self._arrived = 0
                own, now = folder.name == OWN_NAME, time.time()
                since = min(self._begun, default=math.inf)
                for age in (STALE_S, CROWDED_S):
                    self._counted = await asyncio.to_thread(clean, folder, now, own, age, since)
                    if self._counted <= most:
                        break
                self._before = time.monotonic()
            return self._counted + self._arrived

    @contextmanager
    def receiving(self) -> Iterator[None]:
        """An upload goes on; a count removes no file that it may have written in the last hour."""
        began = time.time() - CLOCK_S
        self._begun.append(began)
        try:
            yield
        finally:
            self._begun.remove(began)

    def add(self, size: int) -> int:
        """Count bytes that arrive; returns the bytes in the folder."""
        self._arrived += size
        return self._counted + self._arrived


def clean(
    folder: Path, now: float, own: bool, age: float = STALE_S, since: float = math.inf
) -> int:
    """Remove the stale files of the folder; returns the bytes of the others and of the folders.

    Exports are not counted, and are stale after STALE_S seconds.

    A file is stale if it is older than `age` seconds and is the rest of an interrupted upload or,
    if the folder is this app's `own`, any file. Of its own folder, empty folders of that age are
    removed too. Gradio's default folder is shared with other apps. What was written at the top from
    `since` on may belong to an upload that goes on, of one file after another, and is stale after
    STALE_S seconds.
    """
    held = 0
    for place, folders, files in os.walk(folder, topdown=False):
        top, kept, exports = place == str(folder), 0, place.startswith(str(folder / EXPORTS))
        oldest = now - (STALE_S if exports else age)
        oldest = max(now - STALE_S, min(oldest, since)) if top else oldest
        with suppress(OSError):  # Gradio and the handlers remove files at the same time
            found = os.lstat(place)  # before files are removed, which makes it young
            kept += 0 if top else found.st_size
            links = [name for name in folders if os.path.islink(os.path.join(place, name))]
            for name in [*files, *links]:
                kept += _kept_bytes(os.path.join(place, name), oldest, top, own)
            if own and not top and found.st_ctime < oldest:
                os.rmdir(place)  # an error if files are left
                kept -= found.st_size
        held += 0 if exports else kept
    return held


def _kept_bytes(path: str, oldest: float, top: bool, own: bool) -> int:
    """Remove a file if it is from before `oldest`; returns its bytes if it is kept.

    An upload that goes on lies at the `top` and is written to. Elsewhere a file may be the copy of
    an older one: as for Gradio, its age is the time since it was put there.
    """
    with suppress(OSError):
        found = os.lstat(path)
        if (top or own) and (found.st_mtime if top else found.st_ctime) < oldest:
            os.unlink(path)
            return 0
        return found.st_size
    return 0
