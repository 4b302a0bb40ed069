"""JSON objects by key in a file, one line each, from which interrupted work resumes."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

KEY = 32  # hexadecimal digits
LINE_BYTES = 4_000_000  # most of a line; a longer one is left out


def key_of(parts: Any) -> str:
    """The key of a JSON document: equal documents have equal keys in every process and version."""
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:KEY]


def read_lines(path: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """The keys and objects of a file in order; none if it does not exist.

    A line that is damaged, for example the last one of a process that was killed, or longer than
    LINE_BYTES is left out.
    """
    if not path.is_file():
        return
    with path.open("rb") as file:
        whole = True  # whether `line` starts a line of the file
        while line := file.readline(LINE_BYTES):
            starts, whole = whole, line.endswith(b"\n")
            if not starts:
                continue
            try:
                row = json.loads(line)
                key = row.pop("key")
            except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
                continue
            if isinstance(key, str):
                yield key, row


class KeyedLines:
    """Appends lines to a file; a missing final line break is put right first.

    Another command may append to the same file, and may be killed while it writes.
    """

    def __init__(self, path: Path) -> None:
        self._path = path

    def put(self, key: str, row: Mapping[str, Any]) -> None:
        """Append an object; it is on the disk when this returns.

        Raises ValueError if its line is longer than LINE_BYTES, because it would not be read.
        """
        line = json.dumps({"key": key} | dict(row), ensure_ascii=False) + "\n"
        data = line.encode("utf-8", "surrogatepass")
        if len(data) > LINE_BYTES:
            raise ValueError(f"{self._path}: a line of {len(data)} bytes; at most {LINE_BYTES}")
        self._path.parent.mkdir(parents=True, exist_ok=True)
        with self._path.open("a+b") as file:
            if file.seek(0, os.SEEK_END):
                file.seek(-1, os.SEEK_END)
                data = data if file.read(1) == b"\n" else b"\n" + data
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
