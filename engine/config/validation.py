"""Checks of the parts of a RunSpec that are more than one value; each names its field."""

from __future__ import annotations

import math
import re
import unicodedata
from collections.abc import Mapping, Sequence
from typing import Any

from engine.config.branch_start import REMASK, BranchStart
from engine.config.knobs import Scalar

MAX_STEP = 2**31 - 1
MAX_NAME = 300
LEAST_TEMPERATURE = 1e-3  # below it logits overflow when they are divided by it
_ID = re.compile(r"[A-Za-z0-9_.~-]{1,64}")


def check_name(field: str, name: str) -> None:
    """ValueError where a name of a model, or a path of one, is no line of text or too long."""
    if len(name) > MAX_NAME:
        raise ValueError(f"{field}: {len(name)} characters; at most {MAX_NAME}")
    if any(unicodedata.category(character) in ("Cc", "Cs") for character in name):
        raise ValueError(f"{field}: {name!r} holds a control character; type it again")


def check_divides(length: int, block: int) -> None:
    """ValueError where blocks of `block` do not make up `length`, with what is nearest."""
    if length % block:
        divisors = [d for d in range(1, length + 1) if length % d == 0]
        near = sorted(sorted(divisors, key=lambda d: abs(d - block))[:2])
        raise ValueError(
            f"block_length: {block} does not divide gen_length {length}; "
            f"nearest valid: {' or '.join(map(str, near))}"
        )


def check_temperature(temperature: float) -> None:
    """ValueError where a temperature is above 0 and too small to divide by."""
    if 0 < temperature < LEAST_TEMPERATURE:
        raise ValueError(
            f"temperature: {temperature!r} is neither 0 nor at least {LEAST_TEMPERATURE}; "
            "the nearest valid value is 0"
        )


def checked_knobs(knobs: Mapping[str, Scalar]) -> dict[str, Scalar]:
    """The knobs, sorted; ValueError names one that is not component.knob to a single value."""
    for key, value in knobs.items():
        if not isinstance(key, str) or not key.count(".") == 1 or len(key) > MAX_NAME:
            raise ValueError(f"knobs: {str(key)[:60]!r} should read component.knob")
        if not isinstance(value, bool | int | float | str | None):
            raise ValueError(f"{key}: expected a single value, got {type(value).__name__}")
        if isinstance(value, float) and not math.isfinite(value):
            raise ValueError(f"{key}: must be a finite number, got {value!r}")
    return dict(sorted(knobs.items()))


def checked_fixed(fixed: Any, length: int) -> tuple[tuple[int, int], ...]:
    """Pairs of offset and token id, sorted; ValueError where one does not fit the answer."""
    return _answer_pairs("fixed", fixed, length, "and a token id", 0)


def checked_start(start: Any, length: int, fixed: tuple[tuple[int, int], ...] = ()) -> BranchStart | None:
    """Where a run goes on, from a Start or its plain data; None where it begins afresh.

    Raises ValueError naming `start.trace`, `start.step` or `start.edits`.
    """
    if start is None:
        return None
    given = vars(start) if isinstance(start, BranchStart) else start
    if not isinstance(given, Mapping) or not {"trace", "step"} <= set(given):
        raise ValueError("start: expected a mapping of trace, step and edits")
    unknown = sorted(str(key) for key in set(given) - {"trace", "step", "edits"})
    if unknown:
        raise ValueError(f"start.{unknown[0]}: unknown field; the fields are edits, step, trace")
    trace, step = given["trace"], given["step"]
    if not isinstance(trace, str) or not _ID.fullmatch(trace):
        raise ValueError(
            "start.trace: expected the id of a trace, 1 to 64 letters, digits and _ . ~ -"
        )
    if type(step) is not int or not 0 <= step <= MAX_STEP:
        raise ValueError(f"start.step: expected a whole number from 0 to {MAX_STEP}")
    what = f"and a token id, or {REMASK} to mask it again"
    edits = _answer_pairs("start.edits", given.get("edits", ()), length, what, REMASK)
    both = sorted({offset for offset, _ in edits} & {offset for offset, _ in fixed})
    if both:
        raise ValueError(f"start.edits: offset {both[0]} is given by fixed and stays as it is")
    return BranchStart(trace, step, edits)


def _answer_pairs(
    name: str, given: Any, length: int, what: str, least: int
) -> tuple[tuple[int, int], ...]:
    """Pairs of offset and token id, sorted, the offsets distinct; the ids are at least `least`."""
    try:
        pairs = tuple(sorted((offset, token) for offset, token in given))
    except (TypeError, ValueError):
        raise ValueError(f"{name}: expected pairs of offset and token id") from None
    for offset, token in pairs:
        if (
            type(offset) is not int
            or type(token) is not int
            or not 0 <= offset < length
            or token < least
        ):
            raise ValueError(
                f"{name}: ({offset!r}, {token!r}) needs an offset from 0 to {length - 1} {what}"
            )
    if len({offset for offset, _ in pairs}) < len(pairs):
        raise ValueError(f"{name}: an offset is named twice")
    return pairs


def checked_messages(messages: Any) -> tuple[tuple[str, str], ...]:
    """Pairs of role and text; ValueError for anything else."""
    try:
        turns = tuple((role, text) for role, text in messages)
    except (TypeError, ValueError):
        raise ValueError("messages: expected pairs of role and text") from None
    for role, text in turns:
        if role not in ("system", "user", "assistant") or not isinstance(text, str):
            raise ValueError(
                f"messages: role {role!r} should be system, user or assistant, each with a text"
            )
    return turns


def check_texts(prompt: str, turns: Sequence[str], most: int) -> None:
    """ValueError naming `prompt` for text that UTF-8 cannot hold, for too much, and for both."""
    if prompt and turns:
        raise ValueError("prompt: give either a prompt or messages, not both")
    texts = [prompt, *turns]
    for text in texts:
        try:
            text.encode()
        except UnicodeEncodeError:
            raise ValueError("prompt: holds half a character (a lone surrogate)") from None
    length = sum(map(len, texts))
    if length > most:
        raise ValueError(f"prompt: {length} characters; at most {most}")
