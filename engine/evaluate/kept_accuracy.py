"""Accuracies that are kept in a file, under a key of everything that can change them.

Only what the answers give is kept. Times are not, because they belong to a machine; neither are
numbers of forwards and FLOPs, because problems are decoded in batches, whose sequences wait for
each other at the end of a block.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from engine.batch.decoding_code import code_digest, decoding_modules
from engine.config.spec import RunSpec
from engine.core.files import write_atomically

NOT_READ = ("README.md", "exam.json", "training.json")  # files of a model that no run reads
ANSWERS = (
    "accuracy", "standard_error", "correct", "problems", "gained", "lost", "p", "agreement",
    "tokens", "positions",
)  # fmt: skip
KEPT = ("name", "spec", *ANSWERS)


def row_key(
    spec: RunSpec, baseline: RunSpec, digests: Mapping[str, str], exam: Mapping[str, Any]
) -> str:
    """The key of a row: the specs of the row and of its baseline, models, exam and code.

    `digests` are those of the models' folders by name (folder_digest), `exam` holds the problems,
    seed, shots and family.
    """
    both = (decoding_modules(one.cache, one.unmasker) for one in (spec, baseline))
    parts = {
        "spec": spec.to_dict(), "baseline": baseline.to_dict(), "digests": dict(digests),
        "exam": dict(exam), "torch": torch.__version__,
        "code": [code_digest(path) for path in sorted(set[Path]().union(*both))],
    }  # fmt: skip
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:32]


def folder_digest(folder: Path) -> str:
    """A digest of the files of a model that decide what it decodes: weights, config, tokenizer."""
    sha = hashlib.sha256()
    for path in sorted(folder.rglob("*")):
        if path.is_file() and path.name not in NOT_READ:
            sha.update(f"{path.relative_to(folder).as_posix()} {path.stat().st_size}\n".encode())
            sha.update(path.read_bytes())
    return sha.hexdigest()[:16]


class KeptAccuracy:
    """The accuracies of a file by their keys; a file that is missing or damaged counts as empty."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._used: set[str] = set()
        try:
            rows = json.loads(path.read_text("utf-8"))
        except (OSError, ValueError):
            rows = {}
        self._rows: dict[str, dict[str, Any]] = rows if isinstance(rows, dict) else {}

    def get(self, key: str) -> dict[str, Any] | None:
        """The row of a key; None if it is not kept."""
        self._used.add(key)
        return self._rows.get(key)

    def put(self, key: str, row: Mapping[str, Any]) -> None:
        """Keep the fields KEPT of a row, and write the file."""
        self._used.add(key)
        self._rows[key] = {name: row[name] for name in KEPT}
        self._write()

    def drop_unused(self) -> None:
        """Remove the rows whose keys were not read or written, and write the file."""
        self._rows = {key: row for key, row in self._rows.items() if key in self._used}
        self._write()

    def _write(self) -> None:
        lines = (f"{json.dumps(key)}: {json.dumps(row)}" for key, row in self._rows.items())
        write_atomically(self._path, ("{\n" + ",\n".join(lines) + "\n}\n").encode())
