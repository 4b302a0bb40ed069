"""Checks of RunSpec fields beyond type, range and choices; each error names its field."""

from __future__ import annotations

import math
import unicodedata
from collections.abc import Mapping, Sequence
from typing import Any

from engine.config.knobs import Scalar

MAX_NAME = 300
MAX_STOPS, MAX_STOP_CHARS = 8, 100
NOT_IN_NAMES = ("Cc", "Cf", "Cs", "Zl", "Zp")  # categories of Unicode characters
MIN_TEMPERATURE = 1e-3  # logits divided by less overflow


def check_name(field: str, name: str) -> None:
    """Raise ValueError if a name or the path of a model is too long or has control characters.

    Characters that reorder a text or have no width (Cf) are such, and so are line separators: a
    name with them looks like another one.
    """
    if len(name) > MAX_NAME:
        raise ValueError(f"{field}: {len(name)} characters; at most {MAX_NAME}")
    if any(unicodedata.category(character) in NOT_IN_NAMES for character in name):
        raise ValueError(f"{field}: {name!r} holds a control character; type it again")


def check_divides(length: int, block: int) -> None:
    """Raise ValueError, with the nearest divisors, if `block` does not divide `length`."""
    if length % block:
        divisors = [d for d in range(1, length + 1) if length % d == 0]
        near = sorted(sorted(divisors, key=lambda d: abs(d - block))[:2])
        raise ValueError(
            f"block_length: {block} does not divide gen_length {length}; "
            f"nearest valid: {' or '.join(map(str, near))}"
        )


def check_temperature(temperature: float) -> None:
    """Raise ValueError if a temperature is neither 0 nor at least MIN_TEMPERATURE."""
    if 0 < temperature < MIN_TEMPERATURE:
        raise ValueError(
            f"temperature: {temperature!r} is neither 0 nor at least {MIN_TEMPERATURE}; "
            "the nearest valid value is 0"
        )


def checked_knobs(knobs: Mapping[str, Scalar]) -> dict[str, Scalar]:
    """Knobs sorted by name; ValueError unless each maps `method.knob` to a single value."""
    if not isinstance(knobs, Mapping):
        raise ValueError("knobs: expected a mapping of method.setting to value")
    for key, value in knobs.items():
        if not isinstance(key, str) or not key.count(".") == 1 or len(key) > MAX_NAME:
            raise ValueError(f"knobs: {str(key)[:60]!r} should read method.setting")
        if not isinstance(value, bool | int | float | str | None):
            raise ValueError(f"{key}: expected a single value, got {type(value).__name__}")
        if isinstance(value, float) and not math.isfinite(value):
            raise ValueError(f"{key}: must be a finite number, got {value!r}")
    return dict(sorted(knobs.items()))


def checked_messages(messages: Any) -> tuple[tuple[str, str], ...]:
    """Pairs of role and text; ValueError for anything else."""
    listed = isinstance(messages, list | tuple)
    if not listed or not all(isinstance(one, list | tuple) and len(one) == 2 for one in messages):
        raise ValueError("messages: expected pairs of role and text")
    turns = tuple((role, text) for role, text in messages)
    for role, text in turns:
        if role not in ("system", "user", "assistant") or not isinstance(text, str):
            raise ValueError(
                f"messages: role {role!r} should be system, user or assistant, each with a text"
            )
    return turns


def checked_probes(given: Any, most: int, steps: int) -> tuple[int, ...]:
    """The distinct steps in order; ValueError unless there are at most `most`, each below `steps`.

    Steps are counted from 0 here and from 1 in the message, as on the page.
    """
    if not isinstance(given, list | tuple):
        raise ValueError("probe_at: expected a list of steps")
    for step in given:
        if type(step) is not int or not 0 <= step < steps:
            shown = step + 1 if type(step) is int else step
            raise ValueError(f"probe_at: step {shown!r} is not a whole number from 1 to {steps}")
    if len(set(given)) > most:
        raise ValueError(f"probe_at: {len(set(given))} steps; at most {most} can be probed")
    return tuple(sorted(set(given)))


def check_texts(prompt: str, turns: Sequence[str], max_chars: int, field: str = "prompt") -> None:
    """Raise ValueError if both are given, exceed `max_chars` or are not encodable as UTF-8.

    The message names `field`.
    """
    if prompt and turns:
        raise ValueError("prompt: give either a prompt or messages, not both")
    texts = [prompt, *turns]
    for text in texts:
        try:
            text.encode()
        except UnicodeEncodeError:
            raise ValueError(
                f"{field}: holds half a character (a lone surrogate); type it again"
            ) from None
    length = sum(map(len, texts))
    if length > max_chars:
        raise ValueError(f"{field}: {length} characters; at most {max_chars}")


def checked_stops(given: Any) -> tuple[str, ...]:
    """Texts that end an answer; ValueError unless they are few, short and not empty."""
    if not isinstance(given, list | tuple):
        raise ValueError("stop: expected a list of texts")
    if len(given) > MAX_STOPS:
        raise ValueError(f"stop: {len(given)} texts; at most {MAX_STOPS}")
    for text in given:
        if not isinstance(text, str) or not 0 < len(text) <= MAX_STOP_CHARS:
            raise ValueError(f"stop: each should be a text of 1 to {MAX_STOP_CHARS} characters")
        check_texts(text, (), MAX_STOP_CHARS, "stop")
    return tuple(given)
