"""Problems whose worked answer is known: whether a text is right, and what length it needs."""

from __future__ import annotations

import re

_NUMBER = re.compile(r"\d+")
_WORD = re.compile(r"\w+")
_STOP = re.compile(r"<\|[a-z_]+\|>")
DIGITS = 18  # of a number that is compared; the rest of a longer one is left out


def final_number(text: str) -> int | None:
    """The last whole number before the first special token of a text, or None."""
    found = _NUMBER.findall(_before_stop(text))
    return int(found[-1][:DIGITS]) if found else None


def is_right(text: str, answer: str) -> bool:
    """Whether a text is right.

    If `answer` is a number, the text's last number must be it; otherwise the text must have the
    words and numbers of `answer`, all of them and no others.
    """
    if answer.isdecimal():
        return final_number(text) == int(answer)
    return _WORD.findall(_before_stop(text)) == _WORD.findall(answer)


def fitting_length(tokens: int, block_length: int) -> int:
    """The answer length for a text of `tokens` tokens: the next multiple of the block length."""
    return -(-tokens // block_length) * block_length


def _before_stop(text: str) -> str:
    return _STOP.split(text, maxsplit=1)[0]
