"""The prompts of a batch: typed lines, a JSONL file, or problems of an embedded family."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from engine.config.spec import MAX_PROMPT_CHARS, MAX_PROMPT_FILE_BYTES, MAX_SHOTS
from engine.config.validation import check_texts
from engine.tiny.corpus import exam_questions, families

MAX_PROMPTS = 2_000
MAX_ANSWER_CHARS = 500
MAX_LINES = 20_000  # of a file, with empty ones
MAX_LINE_CHARS = 120_000  # of a file; a character of a text may be written as two escapes
FIELDS = ("prompt", "answer")


@dataclass(frozen=True)
class Prompt:
    """A prompt and its right answer (`engine.config.answers`), None if it is not known.

    Raises ValueError naming `prompt` or `answer`.
    """

    prompt: str
    answer: str | None = None

    def __post_init__(self) -> None:
        if not self.prompt.strip():
            raise ValueError("prompt: it is empty; give a text")
        if self.answer is not None and not 0 < len(self.answer.strip()) <= MAX_ANSWER_CHARS:
            raise ValueError(
                f"answer: it has to have 1 to {MAX_ANSWER_CHARS} characters; leave it out if it is "
                "not known"
            )
        check_texts(self.prompt, (), MAX_PROMPT_CHARS)
        check_texts(self.answer or "", (), MAX_ANSWER_CHARS, "answer")


def typed_prompts(text: str) -> list[Prompt]:
    """A prompt for each line that is not empty.

    Raises ValueError naming `prompts` and the line.
    """
    lines = [(number, line) for number, line in enumerate(text.split("\n"), 1) if line.strip()]
    return _checked((number, {"prompt": line.strip()}) for number, line in lines)


def read_prompts(data: bytes) -> list[Prompt]:
    """The prompts of a JSONL file: an object with `prompt` and optionally `answer` in each line.

    A number as `answer` is taken as its text. Raises ValueError naming `prompts` and the line.
    """
    lines = decoded(data).removesuffix("\n").split("\n", MAX_LINES)
    if len(lines) > MAX_LINES:
        raise ValueError(f"prompts: more than {MAX_LINES} lines; remove the empty ones")
    return _checked((n, _row(n, line)) for n, line in enumerate(lines, 1) if line.strip())


def decoded(data: bytes) -> str:
    """The text of a file of prompts. ValueError naming `prompts` if it is too long or not UTF-8."""
    if len(data) > MAX_PROMPT_FILE_BYTES:
        raise ValueError(
            f"prompts: the file has {len(data) / 1e6:.0f} MB, more than "
            f"{MAX_PROMPT_FILE_BYTES // 10**6}; divide it"
        )
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ValueError(f"prompts: byte {error.start} is not UTF-8; save it as UTF-8") from None


def drawn_prompts(family: str, count: int, seed: int, shots: int = 0) -> list[Prompt]:
    """Exam problems of an embedded family after `shots` worked examples.

    Raises ValueError for an unknown family or more than MAX_PROMPTS problems.
    """
    if not 1 <= count <= MAX_PROMPTS:
        raise ValueError(f"problems: {count} is outside 1 to {MAX_PROMPTS}")
    questions = exam_questions(count, seed, shots, family)
    return [Prompt(prompt, problem.answer) for problem, prompt in questions]


def prompts_of_rows(rows: Sequence[Any]) -> list[Prompt]:
    """The prompts of objects with `prompt` and optionally `answer`, as in the lines of a file.

    Raises ValueError naming `prompts` and the number of the object as its line.
    """
    return _checked((number, _fields(number, row)) for number, row in enumerate(rows, 1))


def _row(number: int, line: str) -> dict[str, Any]:
    """The fields of a line."""
    if len(line) > MAX_LINE_CHARS:
        raise ValueError(
            f"prompts: line {number}: {len(line)} characters; at most {MAX_LINE_CHARS}"
        )
    try:
        row = json.loads(line)
    except (ValueError, RecursionError):
        row = None
    return _fields(number, row)


def _fields(number: int, row: Any) -> dict[str, Any]:
    """The fields of an object; ValueError if it has others."""
    if not isinstance(row, dict) or not isinstance(row.get("prompt"), str):
        raise ValueError(
            f'prompts: line {number}: expected an object like {{"prompt": "...", "answer": "..."}}'
        )
    if unknown := sorted(set(row) - set(FIELDS)):
        raise ValueError(
            f"prompts: line {number}: the field {unknown[0][:40]!r} is unknown; use "
            f"{' and '.join(FIELDS)}"
        )
    answer = row.get("answer")
    if isinstance(answer, int) and not isinstance(answer, bool):
        return row | {"answer": str(answer)}
    if not isinstance(answer, str | None):
        raise ValueError(f"prompts: line {number}: answer: give a text or a whole number")
    return row


def _checked(rows: Iterable[tuple[int, dict[str, Any]]]) -> list[Prompt]:
    """The prompts of numbered rows; too many, none and wrong ones are refused."""
    found: list[Prompt] = []
    for number, row in rows:
        if len(found) == MAX_PROMPTS:
            raise ValueError(f"prompts: there are more than {MAX_PROMPTS}; divide them")
        try:
            found.append(Prompt(**row))
        except ValueError as error:
            raise ValueError(f"prompts: line {number}: {error}") from None
    if not found:
        raise ValueError("prompts: there are none; give one in each line")
    return found


def prompts_of(source: Mapping[str, Any]) -> list[Prompt]:
    """The prompts of a source, which has one field.

    `text` (a prompt a line), `file` (the bytes of a JSONL file), `rows` (a list of objects with
    `prompt` and optionally `answer`) or `problems` (an object with `family`, `count`, `shots` and
    `seed`). Raises ValueError naming `prompts` or `problems`.
    """
    if len(source) != 1:
        raise ValueError("prompts: give either prompts or problems")
    name, given = next(iter(source.items()))
    if name == "text" and isinstance(given, str):
        return typed_prompts(given)
    if name == "file" and isinstance(given, bytes):
        return read_prompts(given)
    if name == "rows" and isinstance(given, list):
        return prompts_of_rows(given)
    if name == "problems" and isinstance(given, Mapping):
        return _problems(given)
    raise ValueError(
        "prompts: give a text, or a list of objects with prompt and answer, or problems"
    )


def _problems(given: Mapping[str, Any]) -> list[Prompt]:
    """The problems of `family`, `count`, `shots` and `seed`."""
    ranges = {"count": (1, MAX_PROMPTS), "shots": (0, MAX_SHOTS), "seed": (0, 2**31 - 1)}
    if unknown := sorted(set(given) - {*ranges, "family"}):
        raise ValueError(
            f"problems: {unknown[0][:40]!r} is unknown; use family, count, shots, seed"
        )
    found = {"count": 20, "shots": 0, "seed": 0} | dict(given)
    for field, (low, high) in ranges.items():
        value = found[field]
        if isinstance(value, float) and value.is_integer():
            value = found[field] = int(value)
        if type(value) is not int or not low <= value <= high:
            raise ValueError(f"problems: {field} has to be a whole number from {low} to {high}")
    family = found.get("family")
    if not isinstance(family, str):
        raise ValueError(f"problems: family is missing; choose from {', '.join(families())}")
    return drawn_prompts(family, found["count"], found["seed"], found["shots"])
