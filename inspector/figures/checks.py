"""Checks of a figure's parameters and of what its trace recorded."""

from __future__ import annotations

import operator
from collections.abc import Collection
from typing import Any

from engine.core.events import QUANTITIES
from engine.trace.trace import Trace
from inspector.views.frame import level_of

QUANTITY_NAMES = {
    "k": "K",
    "v": "V",
    "attn": "attention output",
    "ffn": "feed-forward output",
    "q0": "query of the first head",
}


def index_of(name: str, value: Any, count: int) -> int:
    """`value` as an index from 0 to `count` - 1; ValueError names the parameter `name`."""
    try:
        index = -1 if isinstance(value, bool) else operator.index(value)
    except TypeError:
        index = -1
    if not 0 <= index < count:
        raise ValueError(
            f"{name}: {value!r} is not an index of this trace's {count} {name}s; choose 0 to "
            f"{count - 1} (the page, titles and axes count from 1)"
        )
    return index


def check_choice(name: str, value: Any, choices: Collection[str]) -> None:
    """Raise ValueError, with the name of the parameter and the choices, for any other value."""
    if not isinstance(value, str) or value not in choices:
        known = ", ".join(f'"{one}"' for one in choices)
        raise ValueError(f"{name}: {value!r} is unknown; choose one of {known}")


def check_recorded(trace: Trace, name: str, level: str) -> None:
    """Raise ValueError if the array `name` was not recorded; `level` is the lowest that does so."""
    if not len(trace.arrays()[name]):
        raise ValueError(
            f"trace: it was recorded at level `{level_of(trace)}`, which has no {name}; run its "
            f'spec again with record="{level}" or a higher level'
        )


def check_drift(trace: Trace, quantity: str) -> None:
    """Raise ValueError if the quantity is unknown, or the trace has no drift of it."""
    check_choice("quantity", quantity, QUANTITIES)
    check_recorded(trace, "drift", "layers")
    names = [QUANTITIES[i] for i in trace.arrays()["recorded_quantity"].tolist()]
    if quantity not in names:
        raise ValueError(
            f"quantity: {quantity!r} was not recorded, only {', '.join(names)}; run the trace's "
            "spec again with it in record_quantities"
        )


def check_kept(trace: Trace, name: str, index: int) -> None:
    """Raise ValueError if nothing was recorded in a layer or step; `name` is the parameter."""
    array, field = {
        "layer": ("recorded_layer", "record_layers"), "step": ("drift_step", "record_every")
    }[name]  # fmt: skip
    kept = trace.arrays()[array].tolist()
    if index not in kept:
        near = min(kept, key=lambda other: abs(other - index))
        raise ValueError(
            f"{name}: {index} was not recorded, the nearest that was is {near}; run the trace's "
            f"spec again with another {field}"
        )
