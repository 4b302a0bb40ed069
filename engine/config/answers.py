"""Problems whose worked answer is known: whether a text is right, and what length it needs."""

from __future__ import annotations

import re

# With commas between groups of three digits, and maybe a fraction; a minus, as hyphen or as sign,
# directly before it that follows no word.
_NUMBER = re.compile(r"(?:(?<![\w)])[-\u2212])?(?:\d{1,3}(?:,\d{3})+(?!\d)|\d+)(?:\.\d+)?")
_WORD = re.compile(r"\w+")
_STOP = re.compile(r"<\|[a-z_]+\|>")
DIGITS = 18  # of a number that are compared; the rest of a longer one is left out


def final_number(text: str) -> int | None:
    """The last number before the first special token of a text; None if it is not whole.

    `18.00` is 18.
    """
    found = _NUMBER.findall(_before_stop(text))
    return _value(found[-1]) if found else None


def number_of(answer: str) -> int | None:
    """The number that an answer is, as `7`, `7.`, `-5` or `1,234`; None if it is no whole one."""
    stripped = answer.strip().removesuffix(".")
    return _value(stripped) if _NUMBER.fullmatch(stripped) else None


def is_right(text: str, answer: str) -> bool:
    """Whether a text is right.

    If `answer` is a number, the text's last number must be it; otherwise the text must have the
    words and numbers of `answer`, all of them and no others.
    """
    number = number_of(answer)
    if number is not None:
        return final_number(text) == number
    return _WORD.findall(_before_stop(text)) == _WORD.findall(answer)


def fitting_length(tokens: int, block_length: int) -> int:
    """The answer length for a text of `tokens` tokens: the next multiple of the block length."""
    return -(-tokens // block_length) * block_length


def _value(number: str) -> int | None:
    whole, _, fraction = number.partition(".")
    if fraction.strip("0"):
        return None
    sign, digits = (-1 if number[0] in "-\u2212" else 1), whole.lstrip("-\u2212").replace(",", "")
    return sign * int(digits[:DIGITS])


def _before_stop(text: str) -> str:
    return _STOP.split(text, maxsplit=1)[0]
