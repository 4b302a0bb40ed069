"""Reading an uploaded file, which is deleted then."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path


def read_upload(path: Path, most: int) -> bytes:
    """The bytes of a file, at most one more than `most`; deletes it. Raises OSError."""
    with path.open("rb") as file:
        data = file.read(most + 1)
    with suppress(OSError):
        path.unlink()
    return data
