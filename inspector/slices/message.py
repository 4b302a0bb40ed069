"""Message: the binary form of a slice, a JSON header and the bytes of its arrays."""

from __future__ import annotations

import json
import struct
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from inspector.page_data.packing import TYPES, finite

ALIGN = 8


@dataclass(frozen=True)
class Cut:
    """A slice: its arrays by name, and facts that go into the header."""

    arrays: dict[str, np.ndarray] = field(default_factory=dict)
    facts: dict[str, Any] = field(default_factory=dict)

    @classmethod
    def of(cls, document: dict[str, Any]) -> Cut:
        """The slice of a document that mixes arrays and other values."""
        arrays = {name: value for name, value in document.items() if isinstance(value, np.ndarray)}
        rest = {name: value for name, value in document.items() if name not in arrays}
        return cls(arrays, rest)


def encoded(cut: Cut) -> bytes:
    """The bytes of a slice.

    They are the length of the header (4 bytes, little-endian), the header (JSON in UTF-8, filled
    with spaces) and the arrays (C order, little-endian). The header is an object with `arrays`, a
    list of {name, type, shape, offset}, and `facts`. An offset counts bytes from the end of the
    header; the header ends, and each array begins, at a multiple of ALIGN.
    """
    rows, parts, offset = [], [], 0
    for name, array in cut.arrays.items():
        raw, kind = _raw(array)
        shape = list(array.shape)
        rows.append({"name": name, "type": kind, "shape": shape, "offset": offset})
        parts.append(raw + b"\0" * (-len(raw) % ALIGN))
        offset += len(parts[-1])
    document = {"arrays": rows, "facts": finite(cut.facts)}
    header = json.dumps(document, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    text = header.encode()
    text += b" " * (-(len(text) + 4) % ALIGN)
    return b"".join((struct.pack("<I", len(text)), text, *parts))


def _raw(array: np.ndarray) -> tuple[bytes, str]:
    array = array.view(np.uint8) if array.dtype == bool else array
    kind = array.dtype.str[1:]
    assert kind in TYPES, f"{array.dtype} cannot be sent to the page"
    return np.ascontiguousarray(array, array.dtype.newbyteorder("<")).tobytes(), kind
