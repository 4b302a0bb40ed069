"""Data and scores of the tasks in this folder, named in their YAML files."""

import json
from pathlib import Path
from typing import Any

import datasets

from engine.config.answers import is_right


def load(family: str, **_: Any) -> dict[str, datasets.Dataset]:
    """The problems of a family in the split `test`."""
    lines = Path(__file__).with_name(f"{family}.jsonl").read_text("utf-8").splitlines()
    return {"test": datasets.Dataset.from_list([json.loads(line) for line in lines])}


def right(doc: dict[str, Any], results: list[str]) -> dict[str, float]:
    """Whether the answer of a text is the problem's, as in the exam."""
    return {"right": float(is_right(results[0], doc["answer"]))}
