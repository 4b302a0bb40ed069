"""Problems whose worked answer is known: whether a text is right, and what length it needs."""

from __future__ import annotations

import re
from decimal import Decimal

# With commas between groups of three digits, and maybe a fraction, or a fraction alone that follows
# no word and no point; a minus, as hyphen or as sign, directly before it that follows no word.
_NUMBER = re.compile(
    r"(?:(?<![\w)])[-\u2212])?"
    r"(?:(?:\d{1,3}(?:,\d{3})+(?!\d)|\d+)(?:\.\d+)?|(?<![\w.])\.\d+)"
)
_WORD = re.compile(r"\w+")
_STOP = re.compile(r"<\|[a-z_]+\|>")
DIGITS = 18  # before and after the point that are compared; the rest of a longer one is left out


def final_number(text: str) -> int | None:
    """The last number before the first special token of a text; None if it is not whole.

    `18.00` is 18.
    """
    return _whole(_last_value(text))


def number_of(answer: str) -> int | None:
    """The number that an answer is, as `7`, `7.`, `-5` or `1,234`; None if it is no whole one."""
    return _whole(_value_of(answer))


def is_right(text: str, answer: str) -> bool:
    """Whether a text is right.

    If `answer` is a number, whole or with a fraction, the text's last number must be it; otherwise
    the text must have the words and numbers of `answer`, all of them and no others.
    """
    value = _value_of(answer)
    if value is not None:
        return _last_value(text) == value
    return _WORD.findall(_before_stop(text)) == _WORD.findall(answer)


def fitting_length(tokens: int, block_length: int) -> int:
    """The answer length for a text of `tokens` tokens: the next multiple of the block length."""
    return -(-tokens // block_length) * block_length


def _last_value(text: str) -> Decimal | None:
    found = _NUMBER.findall(_before_stop(text))
    return _value(found[-1]) if found else None


def _value_of(answer: str) -> Decimal | None:
    stripped = answer.strip().removesuffix(".")
    return _value(stripped) if _NUMBER.fullmatch(stripped) else None


def _whole(value: Decimal | None) -> int | None:
    return None if value is None or value != value.to_integral_value() else int(value)


def _value(number: str) -> Decimal:
    whole, _, fraction = number.partition(".")
    sign, digits = ("-" if number[0] in "-\u2212" else ""), whole.lstrip("-\u2212").replace(",", "")
    return Decimal(f"{sign}{digits[:DIGITS]}.{fraction[:DIGITS]}")


def _before_stop(text: str) -> str:
    return _STOP.split(text, maxsplit=1)[0]
