"""Knobs: dataclass fields that know their label, range and choices, and how to check them."""

from __future__ import annotations

import dataclasses
import math
from dataclasses import field
from typing import Any

Scalar = bool | int | float | str | None


def knob(
    default: Scalar,
    lo: float | None = None,
    hi: float | None = None,
    *,
    label: str = "",
    help: str = "",
    choices: tuple[str, ...] = (),
    optional: bool = False,
) -> Any:
    """A dataclass field with what a form, a command line and a check need to know of it."""
    meta = {"lo": lo, "hi": hi, "label": label, "help": help, "choices": choices}
    return field(default=default, metadata=meta | {"optional": optional, "knob": True})


def describe_fields(cls: type) -> list[dict[str, Any]]:
    """The knobs of a dataclass as plain data: name, type, default, range, choices, label, help."""
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


def _typed(name: str, kind: str, value: Any) -> Any:
    """`value` as `kind`, or ValueError naming the field; integers pass as floats."""
    if kind == "float" and type(value) is int:
        value = float(value) if abs(value) < 2**53 else math.inf
    if type(value).__name__ != kind:
        raise ValueError(f"{name}: expected {kind}, got {value!r}")
    if kind == "float" and not math.isfinite(value):
        raise ValueError(f"{name}: must be a finite number, got {value!r}")
    return value


def check_fields(obj: Any, prefix: str = "") -> None:
    """Check every knob of a dataclass instance against its declared type, range and choices.

    Raises ValueError naming the field and what it may be.
    """
    for row in describe_fields(type(obj)):
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
