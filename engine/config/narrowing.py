"""Narrowing: which of a run's drifts are recorded, as fields of a spec and as indices."""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np

from engine.core.events import QUANTITIES, SITES, RecordedCells

ALL, ANSWER = "all", "answer"
RANGE = re.compile(r"([1-9]\d{0,5})(?:-([1-9]\d{0,5}))?")


@dataclass(frozen=True)
class Narrowing:
    """The fields `record_layers`, `record_quantities`, `record_every` and `record_positions`.

    `layers` are numbers and ranges from 1 (`1-4,32`), `quantities` names of events.QUANTITIES
    (`k,v`), `positions` one range of canvas positions from 1 (`1-512`) or `answer`; each may be
    `all`. Of the steps, the first and every `every`-th after it are recorded.
    """

    layers: str = ALL
    quantities: str = ALL
    every: int = 1
    positions: str = ALL

    @property
    def last_position(self) -> int:
        """The last position of a range of positions, from 1; 0 if `positions` is no range."""
        return 0 if self.positions in (ALL, ANSWER) else _position_range(self.positions)[1]

    def check(self, probe: bool) -> None:
        """Raise ValueError naming the field if one cannot be read.

        With `probe`, also if the quantities give a probe nothing to compare.
        """
        _layer_ranges(self.layers)
        if self.positions not in (ALL, ANSWER):
            _position_range(self.positions)
        if min(_quantities(self.quantities)) >= len(SITES) and probe:
            raise ValueError(
                f"record_quantities: level probe compares {', '.join(SITES)}; add one of them"
            )

    def cells(self, layers: int, length: int, behind: int, suffix: int = 0) -> RecordedCells:
        """The cells of a run with so many layers and positions.

        The last `behind` positions follow the prompt, and the last `suffix` of them the answer.

        Raises ValueError naming `record_layers` or `record_positions` if they are beyond these.
        """
        chosen: set[int] = set()
        for lo, hi in _layer_ranges(self.layers) or [(1, layers)]:
            if hi > layers:
                raise ValueError(
                    f"record_layers: layer {hi} is beyond the model's {layers}; "
                    f"give numbers from 1 to {layers}, or {ALL}"
                )
            chosen.update(range(lo - 1, hi))
        special = {ALL: (1, length), ANSWER: (length - behind + 1, length - suffix)}
        first, last = special.get(self.positions) or _position_range(self.positions)
        if last > length:
            raise ValueError(
                f"record_positions: position {last} is beyond the {length} of the canvas; "
                f"give a range within 1-{length}, {ANSWER} or {ALL}"
            )
        return RecordedCells(
            np.array(sorted(chosen), np.int32),
            np.array(_quantities(self.quantities), np.int32),
            np.arange(first - 1, last, dtype=np.int32),
        )


def _layer_ranges(text: str) -> list[tuple[int, int]]:
    """Ranges [lo, hi] of layers from 1; empty for all. ValueError naming `record_layers`."""
    return [] if text == ALL else [_range("record_layers", part) for part in text.split(",")]


def _position_range(text: str) -> tuple[int, int]:
    """The range [lo, hi] of positions from 1; ValueError naming `record_positions`."""
    return _range("record_positions", text)


def _range(field: str, text: str) -> tuple[int, int]:
    found = RANGE.fullmatch(text.strip())
    lo, hi = (int(found[1]), int(found[2] or found[1])) if found else (1, 0)
    if lo > hi:
        example = f"1-4,32 or {ALL}" if field == "record_layers" else f"1-512, {ANSWER} or {ALL}"
        raise ValueError(
            f"{field}: {text.strip()[:40]!r} is not a rising range of numbers from 1; write for "
            f"example {example}"
        )
    return lo, hi


def _quantities(text: str) -> list[int]:
    """Rising indices into QUANTITIES; ValueError naming `record_quantities`."""
    names = QUANTITIES if text == ALL else tuple(part.strip() for part in text.split(","))
    for name in names:
        if name not in QUANTITIES:
            raise ValueError(
                f"record_quantities: {name[:40]!r} is unknown; choose from "
                f"{', '.join(QUANTITIES)}, separated by commas, or {ALL}"
            )
    return sorted({QUANTITIES.index(name) for name in names})
