"""Files that the engine keeps: the user's cache folder, whole writes, and room on a disk."""

from __future__ import annotations

import os
import shutil
import tempfile
import uuid
from pathlib import Path

ASSETS = Path(__file__).parents[2] / "assets"


def cache_path(digest: str, name: str) -> Path:
    """Where a file made for the checkpoint `digest` is kept; the folder may not exist yet.

    Follows XDG_CACHE_HOME where it is an absolute path, else `~/.cache`, or the folder of
    temporary files for a user without a home.
    """
    wanted, home = os.environ.get("XDG_CACHE_HOME", ""), os.path.expanduser("~/.cache")
    root = next(filter(os.path.isabs, (wanted, home)), tempfile.gettempdir())
    return Path(root) / "driftscope" / digest / name


def free_on_disk(folder: Path) -> int:
    """Bytes free where a folder lies, or would lie: it need not exist yet."""
    there = next(p for p in (folder, *folder.absolute().parents) if p.exists())
    return shutil.disk_usage(there).free


def write_whole(path: Path, data: bytes | memoryview) -> None:
    """Write a file so that it appears whole or not at all; OSError where it cannot be written."""
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f"{path.name}.{uuid.uuid4().hex}.part")
    try:
        part.write_bytes(data)
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)
