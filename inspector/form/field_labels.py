"""The labels of the form's controls in messages that name fields of a spec."""

from __future__ import annotations

import re
from collections.abc import Mapping

FIRST = re.compile(r"(Lane [AB], )?([ab]\.)?([\w.]+): ")
CODE_ONLY = ("dtype", "eos")  # no words, so that they are a field wherever they stand
UNKNOWN = ": unknown field; the fields are "
VERBS = "set|lower|raise|choose"  # what follows one of these is a field also if it is a plain word


def with_labels(message: str, labels: Mapping[str, str]) -> str:
    """A message of a refused spec, with the labels of the controls in place of the fields' names.

    Args:
        message: the text of the ValueError; it may begin with the lane, the field and a colon.
        labels: the label of each field of a spec and of each knob, by its name.
    """
    if UNKNOWN in message:  # the fields that it lists are names of keys, not of controls
        return message
    first = FIRST.match(message)
    if first is None or first[3] not in labels:
        return _quote_names(message, labels)
    lane = first[1] or (f"Lane {first[2][0].upper()}, " if first[2] else "")
    return f"{lane}{labels[first[3]]}: {_quote_names(message[first.end() :], labels)}"


def _quote_names(text: str, labels: Mapping[str, str]) -> str:
    """The text with quoted labels for the names of fields in it; plain words only after a verb."""
    plain = {name for name in labels if name.isalpha() and name not in CODE_ONLY}
    names = "|".join(map(re.escape, sorted(labels.keys() - plain, key=len, reverse=True)))
    words = "|".join(sorted(plain))
    pattern = rf"(?<![\w.'])(?:(?P<verb>{VERBS}) (?P<word>{words})|(?P<name>{names}))(?![\w.']\w)"

    def quoted(found: re.Match[str]) -> str:
        verb = found["verb"] + " " if found["verb"] else ""
        return f"{verb}“{labels[found['name'] or found['word']]}”"

    return re.sub(pattern, quoted, text)
