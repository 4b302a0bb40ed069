"""Knobs: dataclass fields with a label, help, a range and choices, and the check of their values.

Not pydantic: it would replace only `check_fields`, and each of its errors would have to be
translated, since none starts with the field and ends with the nearest valid value.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Mapping
from dataclasses import field
from functools import cache
from typing import Any

Scalar = bool | int | float | str | None
KINDS = {"bool": "true or false", "int": "a whole number", "float": "a number", "str": "text"}


def knob(
    default: Scalar,
    lo: float | None = None,
    hi: float | None = None,
    *,
    label: str = "",
    help: str = "",
    choices: tuple[str, ...] = (),
    optional: bool = False,
    search: tuple[Scalar, ...] = (),
) -> Any:
    """A dataclass field with the metadata of forms, command lines and `check_fields`.

    Valid values are `lo` to `hi`, `choices` (empty: any) and, if `optional`, None. An empty `label`
    stands for the field's name in words. `search` are the values that `engine.advise` tries.
    """
    meta = {"lo": lo, "hi": hi, "label": label, "help": help, "choices": choices}
    more = {"optional": optional, "search": search, "knob": True}
    return field(default=default, metadata=meta | more)


def searched_values(cls: type) -> dict[str, tuple[Scalar, ...]]:
    """The values to search of each knob of a dataclass that has any, by name."""
    fields = dataclasses.fields(cls)
    return {f.name: f.metadata["search"] for f in fields if f.metadata.get("search")}


def describe_fields(cls: type) -> list[dict[str, Any]]:
    """The knobs of a dataclass as plain data, one mapping each, with their name and type."""
    return [dict(row) for row in _described_fields(cls)]


@cache
def _described_fields(cls: type) -> list[dict[str, Any]]:
    rows = []
    for f in dataclasses.fields(cls):
        if not f.metadata.get("knob"):
            continue
        kind = f.type.__name__ if isinstance(f.type, type) else str(f.type)
        kind = kind.removesuffix(" | None")
        row = {"name": f.name, "type": kind, "default": f.default}
        row |= {k: f.metadata[k] for k in ("lo", "hi", "choices", "help", "optional")}
        rows.append(row | {"label": f.metadata["label"] or f.name.replace("_", " ")})
    return rows


def text_knobs(components: Iterable[Mapping[str, Any]]) -> set[str]:
    """The names `method.knob` of text knobs, of methods as `catalog.describe` gives them.

    See `RunSpec.from_flat`.
    """
    pairs = ((component["name"], row) for component in components for row in component["knobs"])
    return {f"{name}.{row['name']}" for name, row in pairs if row["type"] == "str"}


def _typed(name: str, kind: str, value: Any) -> Any:
    """`value` if it has the type named `kind`, with int converted to float; else ValueError."""
    if kind == "float" and type(value) is int:
        value = float(value) if abs(value) < 2**53 else math.inf
    if type(value).__name__ != kind:
        given = "nothing" if value is None else repr(value)
        raise ValueError(f"{name}: expected {KINDS[kind]}, got {given}")
    if kind == "float" and not math.isfinite(value):
        raise ValueError(f"{name}: must be a finite number, got {value!r}")
    return value


def check_fields(obj: Any, prefix: str = "") -> None:
    """Check every knob of a dataclass instance; integers become floats if that is declared.

    Raises ValueError with `prefix` and the field's name, what is wrong and the nearest valid value.
    """
    kind: type = type(obj)
    for row in _described_fields(kind):
        name, value = prefix + row["name"], getattr(obj, row["name"])
        if value is None and row["optional"]:
            continue
        value = _typed(name, row["type"], value)
        lo, hi = row["lo"], row["hi"]
        if (lo is not None and value < lo) or (hi is not None and value > hi):
            raise ValueError(
                f"{name}: {value!r} is outside {lo} to {hi}; the nearest valid value "
                f"is {lo if value < lo else hi}"
            )
        if row["choices"] and value not in row["choices"]:
            raise ValueError(
                f"{name}: {value!r} is unknown; choose from {', '.join(row['choices'])}"
            )
        object.__setattr__(obj, row["name"], value)
