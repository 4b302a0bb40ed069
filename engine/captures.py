"""Captures: captured forwards beside eager ones, and how often the host waits, as a table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from engine import suite
from engine.figures import NOT_RUN, aligned

HEAD = (
    "model", "cache", "captured", "eager", "gain", "same tokens", "waits inside a step",
    "waits a step",
)  # fmt: skip


def table(found: Sequence[Mapping[str, Any]]) -> str:
    """Markdown of the rows of engine.figures that were run both ways; ms a forward."""
    known = {(row["group"], row["name"]): row for row in found}
    lines: list[list[str]] = [list(HEAD), ["---"] * len(HEAD)]
    for group in suite.GPU_MODELS.values():
        for cache in suite.CAPTURED:
            rows = [known.get((group, name)) for name in (cache, f"{cache}, eager")]
            lines.append([group, cache, *_cells(*rows)])
    return aligned(lines)


def _cells(captured: Mapping[str, Any] | None, eager: Mapping[str, Any] | None) -> list[str]:
    if captured is None or eager is None:
        return [NOT_RUN, *[""] * (len(HEAD) - 3)]
    waits = captured["waits"]
    return [
        f"{captured['ms']:.2f}",
        f"{eager['ms']:.2f}",
        f"{1 / eager['speed_up']:.2f}x",
        "" if eager["same"] is None else f"{eager['same']:.1%}",
        *(("", "") if waits is None else (f"{count:.2f}" for count in waits)),
    ]
