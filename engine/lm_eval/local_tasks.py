"""Write the problems of the local tasks: exam problems of two families of the embedded corpus."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from engine.core.command_line import CommandParser, without_traceback
from engine.core.files import write_atomically
from engine.tiny.corpus import draw
from engine.tiny.family import Problem

COMMAND = "python -m engine.lm_eval.local_tasks"
FOLDER = Path(__file__).parent / "tasks"
FAMILIES = ("short_problems", "word_problems")
PROBLEMS, SEED, CHOICES = 100, 7, 4
_NUMBER = re.compile(r"\d+(?=\D*$)")  # the last one of a text


def document(one: Problem, rng: random.Random) -> dict[str, Any]:
    """A problem with CHOICES worked answers, of which all but one end with a wrong number."""
    right = int(_NUMBER.findall(one.solution)[0])
    wrong = rng.sample([n for n in range(max(0, right - 9), right + 10) if n != right], CHOICES - 1)
    numbers = rng.sample([right, *wrong], CHOICES)
    return {
        "question": one.question,
        "solution": one.solution,
        "answer": one.answer,
        "choices": [_NUMBER.sub(str(number), one.solution) for number in numbers],
        "right_choice": numbers.index(right),
    }


def lines(family: str) -> str:
    """The problems of a family, one JSON object a line."""
    rng = random.Random(SEED)
    rows = [document(one, rng) for one in draw(SEED, PROBLEMS, family=family)]
    return "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)


def main(arguments: Sequence[str] | None = None) -> None:
    """Write the files of all families; `arguments` default to those of the process."""
    CommandParser(prog=COMMAND, description=__doc__, alone=True).parse_args(arguments)
    try:
        for family in FAMILIES:
            write_atomically(FOLDER / f"{family}.jsonl", lines(family).encode())
    except OSError as error:
        raise SystemExit(f"error: {error}") from None


if __name__ == "__main__":
    with without_traceback():
        main()
