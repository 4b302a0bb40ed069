"""Accuracies that are kept in a file, under a key of everything that can change them.

Only what the answers give is kept. Times are not, because they belong to a machine; neither are
numbers of forwards and FLOPs, because problems are decoded in batches, whose sequences wait for
each other at the end of a block.
"""

from __future__ import annotations

import ast
import hashlib
import inspect
import json
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import torch

from engine.catalog import decoding_rules, make_rule, policies
from engine.config.spec import RunSpec
from engine.core.files import write_atomically
from engine.unmask.methods.autoregressive import Autoregressive
from engine.unmask.methods.guided import Guided

ENGINE = Path(__file__).parents[1]
# The code that decides which tokens are decoded and which answers are right. Of the methods only
# those that a spec uses are added.
PACKAGES = ("cache", "generate", "models", "tiny/families", "unmask")
# Of specs with an autoregressive model, as guider or as decoder, also these.
CAUSAL = ("guider/*.py", "generate/autoregressive.py")
MODULES = (
    "batch/statistics.py", "catalog.py", "core/rows.py", "core/regions.py", "config/answers.py",
    "config/blocks.py", "config/plan.py", "config/spec.py", "evaluate/comparison.py",
    "evaluate/exam.py", "serve/drift_meter.py", "serve/loaded_model.py", "tiny/corpus.py",
    "tiny/family.py", "tiny/phrases.py", "tiny/scenes.py",
)  # fmt: skip
# Subpackages left out: methods of other specs; loading, which gives the weights of the digests;
# captured forwards, whose tokens the tests compare with those of eager ones.
LEFT_OUT = ("methods", "loading", "capture")
# Accuracies are computed on a CPU.
OF_A_GPU = ("fused.py", "fused_trials.py", "triton_kernels.py", "triton_rows.py")
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
    parts = {
        "spec": spec.to_dict(), "baseline": baseline.to_dict(), "digests": dict(digests),
        "exam": dict(exam), "torch": torch.__version__,
        "code": [code_digest(path) for path in _sources(spec, baseline)],
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


@cache
def code_digest(path: Path) -> str:
    """A digest of the syntax tree of a module, without comments and docstrings."""
    tree = ast.parse(path.read_text("utf-8"))
    for node in ast.walk(tree):
        body = getattr(node, "body", None)
        if isinstance(body, list) and body and _is_text(body[0]):
            body[0] = ast.Expr(ast.Constant(""))
    return hashlib.sha256(ast.dump(tree).encode()).hexdigest()


def _is_text(node: ast.AST) -> bool:
    constant = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    return constant and isinstance(node.value.value, str)  # type: ignore[attr-defined]


def _sources(*specs: RunSpec) -> list[Path]:
    """The modules of the code that decodes the specs and marks their answers."""
    found = {ENGINE / name for name in MODULES}
    for package in PACKAGES:
        paths = (ENGINE / package).rglob("*.py")
        found |= {p for p in paths if p.parent.name not in LEFT_OUT and p.name not in OF_A_GPU}
    causal = {path for pattern in CAUSAL for path in ENGINE.glob(pattern)}
    found -= causal
    for spec in specs:
        if isinstance(make_rule(spec), Guided | Autoregressive):
            found |= causal
        methods = [policies()[name] for name in spec.cache.split("+")]
        found |= {Path(inspect.getfile(one)) for one in (*methods, decoding_rules()[spec.unmasker])}
    return sorted(found)


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
