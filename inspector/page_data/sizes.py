"""Format numbers of bytes and of parameters, in decimal units, seconds, and counts."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import numpy as np

UNITS = ((1e12, "TB"), (1e9, "GB"), (1e6, "MB"), (1e3, "kB"))
SCALES = ((1e9, "B"), (1e6, "M"), (1e3, "k"))
TIMES = ((3600, "h"), (60, "min"), (1, "s"))


def size(count: float) -> str:
    """A number of bytes, for example `16.0 GB`, with three significant digits."""
    return in_unit(count, UNITS, _three) or counted(int(count), "byte")


def counted(count: int, noun: str) -> str:
    """A count with its noun, in the plural unless it is 1, for example `3 steps`."""
    return f"{count} {noun}{'s' * (count != 1)}"


def parameters(count: int) -> str:
    """A number of parameters, for example `8.02 B`, with three significant digits."""
    return in_unit(count, SCALES, _three) or str(count)


def seconds(count: float) -> str:
    """A time in the largest unit below it, for example `21.4 ms` or `8.69 h`."""
    return in_unit(count, TIMES, three_digits) or f"{three_digits(count * 1e3)} ms"


def in_unit(
    count: float, units: Iterable[tuple[float, str]], digits: Callable[[float], str]
) -> str:
    """A number in the first of `units` that it reaches, in words by `digits`; empty if none."""
    for scale, unit in units:
        if count >= 0.9995 * scale:
            return f"{digits(count / scale)} {unit}"
    return ""


def three_digits(value: float) -> str:
    """A number with three significant digits, without zeros at its end and without an exponent."""
    if value >= 999.5:
        return f"{value:,.0f}"
    return np.format_float_positional(
        float(value), precision=3, unique=False, fractional=False, trim="-"
    )


def _three(value: float) -> str:
    digits = 2 if value < 9.995 else 1 if value < 99.95 else 0
    return f"{value:.{digits}f}"
