"""JSON of unknown origin: duplicate names, NaN and deep nesting are errors that say so."""

from __future__ import annotations

import json
from typing import Any

DIGITS = 20  # most of a whole number


def load(text: str | bytes) -> Any:
    """The value of a JSON text.

    Raises ValueError with the remedy for text that is no JSON, a name that an object has twice,
    NaN and infinity, which JSON does not have, numbers of more than DIGITS digits, and lists
    nested deeper than Python reads.
    """
    try:
        return json.loads(
            text, object_pairs_hook=_object, parse_constant=_constant, parse_int=_integer
        )
    except RecursionError:
        raise ValueError("file: nested too deep; a run needs four levels") from None
    except json.JSONDecodeError as error:
        place = f"line {error.lineno}, column {error.colno}"
        raise ValueError(f"file: no JSON ({error.msg}, {place}); export it again") from None
    except UnicodeDecodeError:
        raise ValueError("file: no UTF-8 text; save it as UTF-8") from None


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, value in pairs:
        if name in found:
            raise ValueError(f"{name[:60]!a}: given twice in one object; keep one of them")
        found[name] = value
    return found


def _integer(digits: str) -> int:
    if len(digits) > DIGITS:
        raise ValueError(f"{digits[:DIGITS]}…: no number of a run has {len(digits)} digits")
    return int(digits)


def _constant(name: str) -> Any:
    raise ValueError(f"{name}: JSON has no such number; write null for an unknown value")
