"""Files that the engine makes once for a checkpoint and keeps in the user's cache folder."""

from __future__ import annotations

import os
import tempfile
import uuid
from pathlib import Path


def cache_path(digest: str, name: str) -> Path:
    """Where a file made for the checkpoint `digest` is kept; the folder may not exist yet.

    Follows XDG_CACHE_HOME where it is an absolute path, else `~/.cache`, or the folder of
    temporary files for a user without a home.
    """
    wanted, home = os.environ.get("XDG_CACHE_HOME", ""), os.path.expanduser("~/.cache")
    root = next(filter(os.path.isabs, (wanted, home)), tempfile.gettempdir())
    return Path(root) / "driftscope" / digest / name


def write_whole(path: Path, data: bytes) -> None:
    """Write a file so that it appears whole or not at all; OSError where it cannot be written."""
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f"{path.name}.{uuid.uuid4().hex}.part")
    try:
        part.write_bytes(data)
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)
