"""The exam of a checkpoint: `exam.json` beside its weights, as `train card` writes it."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from engine.core.files import write_atomically
from engine.models.loading.checkpoint import CheckpointError, read_json

EXAM = "exam.json"
FULL, HALF = "float32", "bfloat16"
KEPT = ("name", "family", "shots", "problems", "correct", "spec")


class FormatScores(NamedTuple):
    """Right answers of one setting in two number formats, on the same problems."""

    family: str
    problems: int
    float32: int
    bfloat16: int

    @property
    def lost(self) -> float:
        """The share of the problems by which bfloat16 answers fewer right; negative if more."""
        return (self.float32 - self.bfloat16) / self.problems


def write_exam(folder: Path, rows: Sequence[Mapping[str, Any]]) -> None:
    """Write the rows of an exam, each with its family, numbers of problems and settings."""
    kept = [{name: row[name] for name in KEPT if name in row} for row in rows]
    write_atomically(folder / EXAM, (json.dumps({"rows": kept}, indent=1) + "\n").encode())


def format_scores(folder: Path) -> list[FormatScores]:
    """The settings that the exam of a checkpoint has in float32 and in bfloat16.

    Empty without `exam.json`. Raises CheckpointError if it is damaged.
    """
    if not (folder / EXAM).exists():
        return []
    scores: dict[str, dict[str, tuple[int, int]]] = {}
    families: dict[str, str] = {}
    try:
        for row in read_json(folder / EXAM)["rows"]:
            dtype = row["spec"].get("dtype", "")
            problems, correct = row["problems"], row["correct"]
            if not (type(problems) is int and type(correct) is int and 0 <= correct <= problems):
                raise ValueError
            key = json.dumps(
                [str(row["family"]), row.get("shots", 0), problems, row["spec"] | {"dtype": ""}],
                sort_keys=True,
            )
            families[key] = str(row["family"])
            scores.setdefault(key, {})[dtype] = problems, correct
    except (ValueError, LookupError, TypeError, AttributeError):
        raise CheckpointError(f"{EXAM}: not the output of `train card`; write it again") from None
    return [
        FormatScores(families[key], found[FULL][0], found[FULL][1], found[HALF][1])
        for key, found in scores.items()
        if FULL in found and HALF in found and found[FULL][0]
    ]
