"""Checks of the parts of a RunSpec that are more than one value; each names its field."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

from engine.fields import Scalar


def check_divides(length: int, block: int) -> None:
    """ValueError where blocks of `block` do not make up `length`, with what is nearest."""
    if length % block:
        divisors = [d for d in range(1, length + 1) if length % d == 0]
        near = sorted(sorted(divisors, key=lambda d: abs(d - block))[:2])
        raise ValueError(
            f"block_length: {block} does not divide gen_length {length}; "
            f"nearest valid: {' or '.join(map(str, near))}"
        )


def checked_knobs(knobs: Mapping[str, Scalar]) -> dict[str, Scalar]:
    """The knobs, sorted; ValueError names one that is not component.knob to a single value."""
    for key, value in knobs.items():
        if not isinstance(key, str) or not key.count(".") == 1:
            raise ValueError(f"knobs: {key!r} should read component.knob")
        if not isinstance(value, bool | int | float | str | None):
            raise ValueError(f"{key}: expected a single value, got {type(value).__name__}")
        if isinstance(value, float) and not math.isfinite(value):
            raise ValueError(f"{key}: must be a finite number, got {value!r}")
    return dict(sorted(knobs.items()))


def checked_fixed(fixed: Any, length: int) -> tuple[tuple[int, int], ...]:
    """Pairs of offset and token id, sorted; ValueError where one does not fit the answer."""
    try:
        pairs = tuple(sorted((offset, token) for offset, token in fixed))
    except (TypeError, ValueError):
        raise ValueError("fixed: expected pairs of offset and token id") from None
    for offset, token in pairs:
        if (
            type(offset) is not int
            or type(token) is not int
            or not 0 <= offset < length
            or token < 0
        ):
            raise ValueError(
                f"fixed: ({offset!r}, {token!r}) needs an offset from 0 to {length - 1} "
                "and a token id"
            )
    if len({offset for offset, _ in pairs}) < len(pairs):
        raise ValueError("fixed: an offset is named twice")
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


def check_unicode(texts: Iterable[str]) -> None:
    """ValueError for text that cannot be written as UTF-8."""
    for text in texts:
        try:
            text.encode()
        except UnicodeEncodeError:
            raise ValueError("prompt: holds half a character (a lone surrogate)") from None
