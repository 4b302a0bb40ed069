"""Files: where assets and the user's cache are, JSON, atomic writes, free disk space."""

from __future__ import annotations

import errno
import json
import os
import shutil
import tempfile
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

ASSETS = Path(__file__).parents[2] / "assets"


def cache_path(digest: str, name: str) -> Path:
    """The path of a file cached for the checkpoint `digest`; its folder may not exist yet.

    The root is XDG_CACHE_HOME if that is an absolute path, else `~/.cache`, else the folder for
    temporary files.
    """
    roots = (os.environ.get("XDG_CACHE_HOME", ""), os.path.expanduser("~/.cache"))
    root = next(filter(os.path.isabs, roots), tempfile.gettempdir())
    return Path(root) / "driftscope" / digest / name


def free_on_disk(folder: Path) -> int:
    """Free bytes on the disk of a folder, which need not exist yet.

    Raises FileNotFoundError naming the folder if it is on a drive that does not exist (Windows).
    """
    for path in (folder, *folder.absolute().parents):
        if path.exists():
            return shutil.disk_usage(path).free
    raise FileNotFoundError(errno.ENOENT, "No such drive", str(folder))


def read_json(path: Path, field: str) -> Any:
    """The content of a JSON file. Raises ValueError naming `field` and the file."""
    try:
        return json.loads(path.read_text("utf-8-sig"))
    except (OSError, ValueError, RecursionError) as error:
        raise ValueError(f"{field}: {path} is not readable as JSON ({error})") from None


def check_writable(path: Path) -> None:
    """Create the folder of a file; OSError naming it or `path` if the file cannot be written."""
    with tempfile.TemporaryFile(dir=_target(path).parent):
        pass


def _target(path: Path) -> Path:
    """Where a file is written, in a folder that is created if missing; OSError as `atomic_file`."""
    if not path.name or path.is_dir():
        raise OSError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    if path.exists() and not path.is_file():  # a device or a pipe, which a file would replace
        raise OSError(errno.EINVAL, "Not a regular file", str(path))
    target = path.resolve()
    target.parent.mkdir(parents=True, exist_ok=True)
    return target


@contextmanager
def atomic_file(path: Path) -> Iterator[IO[bytes]]:
    """A file to write, and its folder if missing; it appears at `path` once it is complete.

    If `path` is a symbolic link, the file appears where the link points. Raises OSError naming
    `path` if that is impossible.
    """
    target = _target(path)
    part = target.with_name(f"{target.name}.{uuid.uuid4().hex}.part")
    try:
        with part.open("wb") as file:
            yield file
        part.replace(target)
    except OSError as error:
        if error.filename not in (None, str(part)):
            raise
        raise OSError(error.errno, error.strerror, str(path)) from None  # a full disk has no name
    finally:
        part.unlink(missing_ok=True)


def write_atomically(path: Path, data: bytes | memoryview) -> None:
    """Write a file atomically, and its folder if missing; OSError if that is impossible."""
    with atomic_file(path) as file:
        file.write(data)
