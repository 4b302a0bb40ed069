"""Data as JSON for the page; arrays are little-endian bytes, deflated, in base64."""

from __future__ import annotations

import base64
import math
import zlib
from collections.abc import Mapping
from typing import Any

import numpy as np

TYPES = ("u1", "u2", "i4", "f4")


def packed(array: np.ndarray) -> dict[str, Any]:
    """Encode an array as `{"type", "shape", "data"}`. Its type is one of TYPES, or bool as u1."""
    array = array.astype(np.uint8) if array.dtype == bool else array
    kind = array.dtype.str[1:]
    assert kind in TYPES, f"{array.dtype} cannot be sent to the page"
    raw = np.ascontiguousarray(array, array.dtype.newbyteorder("<"))
    data = base64.b64encode(zlib.compress(raw.data, 6)).decode()
    return {"type": kind, "shape": list(array.shape), "data": data}


def pack_arrays(document: Mapping[str, Any]) -> dict[str, Any]:
    """A document with each of its arrays encoded by `packed`; other values stay as they are."""
    return {
        name: packed(value) if isinstance(value, np.ndarray) else value
        for name, value in document.items()
    }


def finite(value: Any) -> Any:
    """A document with None for numbers that JSON does not have."""
    if isinstance(value, dict):
        return {name: finite(one) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [finite(one) for one in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
