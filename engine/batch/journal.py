"""Journal: the outcomes of a batch in a file, one JSON line each, from which it resumes."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from engine.batch.outcome import Outcome
from engine.config.spec import RunSpec

KEY = 32  # hexadecimal digits
OF_RUN = ("seed", "record", "dtype", "device")  # of an environment; the spec has them as well


def run_key(spec: RunSpec, answer: str | None, environment: Mapping[str, Any]) -> str:
    """The key of a run: its spec with the prompt, the right answer, checkpoint and machine.

    `environment` is that of `engine.serve.environment`. Times of two machines, numbers of threads
    or versions are never mixed, because their keys differ.
    """
    where = {name: value for name, value in environment.items() if name not in OF_RUN}
    parts = {"spec": spec.to_dict(), "answer": answer, "environment": where}
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:KEY]


class Journal:
    """Outcomes by key, and the file that they are appended to as they are finished.

    A line that is damaged, for example the last one of a process that was killed, is left out and
    its run is done again. Without a `path` nothing is written.
    """

    def __init__(self, path: Path | None = None) -> None:
        self._path = path
        self._held: dict[str, Outcome] = {}
        self._ended = True  # whether the file ends with a line break
        if path is not None and path.is_file():
            data = path.read_bytes()
            self._ended = data.endswith(b"\n") or not data
            for line in data.splitlines():
                self._read(line)

    def __len__(self) -> int:
        return len(self._held)

    def get(self, key: str) -> Outcome | None:
        """The outcome of a key, or None."""
        return self._held.get(key)

    def put(self, key: str, outcome: Outcome) -> None:
        """Keep an outcome, and append it to the file before returning."""
        self._held[key] = outcome
        if self._path is None:
            return
        self._path.parent.mkdir(parents=True, exist_ok=True)
        with self._path.open("a", encoding="utf-8") as file:
            line = json.dumps({"key": key} | outcome.to_dict(), ensure_ascii=False)
            file.write(("" if self._ended else "\n") + line + "\n")
            file.flush()
            os.fsync(file.fileno())
        self._ended = True

    def _read(self, line: bytes) -> None:
        try:
            row = json.loads(line)
            key = row.pop("key")
            self._held[key] = Outcome.from_dict(row)
        except (ValueError, TypeError, KeyError, AttributeError):
            return
