"""Format numbers of bytes and of parameters, in decimal units."""

from __future__ import annotations

UNITS = ((1e12, "TB"), (1e9, "GB"), (1e6, "MB"), (1e3, "kB"))
SCALES = ((1e9, "B"), (1e6, "M"), (1e3, "k"))


def size(count: float) -> str:
    """A number of bytes, for example `16.0 GB`, with three significant digits."""
    for scale, unit in UNITS:
        if count >= 0.9995 * scale:
            return f"{_three(count / scale)} {unit}"
    return f"{int(count)} bytes"


def parameters(count: int) -> str:
    """A number of parameters, for example `8.02 B`, with three significant digits."""
    for scale, word in SCALES:
        if count >= 0.9995 * scale:
            return f"{_three(count / scale)} {word}"
    return str(count)


def _three(value: float) -> str:
    digits = 2 if value < 9.995 else 1 if value < 99.95 else 0
    return f"{value:.{digits}f}"
