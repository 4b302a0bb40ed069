"""Metrics of a run, computed from its step events."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from engine.core.events import PARTS, StepEvent

SUMMED = (
    "forwards", "rows", "rows_plain", "forward_ms", "decide_ms", "recomputed", "flops",
)  # fmt: skip
SUMMED_GUIDED = (
    "ms", "prefill_ms", "forwards", "fed", "prefilled", "prefill_flops", "accepted",
    "fell_back", "straddle_loss",
)  # fmt: skip


def steps_to_reveal(revealed: np.ndarray) -> int:
    """Number of steps until the last of some positions was committed; 0 if none was.

    `revealed` [n] int holds the step of each position, -1 if the run did not commit it.
    """
    return int(revealed.max(initial=-1)) + 1


def recomputed_share(recomputed: float, steps: int, fills: int) -> float:
    """Token-layers recomputed in a run, over those of all positions in its proposing steps.

    `recomputed` is the sum of StepEvent.recomputed over all `steps`. `fills` of these only fill a
    cache: their work counts, but they do not count as steps, because plain decoding has none. So
    the share of a run of few steps may exceed 1.
    """
    return recomputed / max(steps - fills, 1)


@dataclass
class Tally:
    """Sums over the steps of a run of `length` rows; times are milliseconds of the engine alone.

    `revealed` [batch, length] int32 is the last step that committed each position, -1 if none did;
    `fills` of the `steps` only fill a cache; `ms_so_far[i]` is the time of the first i steps.
    """

    length: int
    batch: int = 1
    steps: int = 0
    forwards: int = 0
    full_steps: int = 0
    fills: int = 0
    rows: int = 0
    rows_plain: int = 0
    committed: int = 0
    forward_ms: float = 0.0
    decide_ms: float = 0.0
    recomputed: float = 0.0
    flops: np.ndarray = field(default_factory=lambda: np.zeros(len(PARTS), np.int64))
    guided: Counter[str] = field(default_factory=Counter)
    ms_so_far: list[float] = field(default_factory=lambda: [0.0])

    def __post_init__(self) -> None:
        self.revealed = np.full((self.batch, self.length), -1, np.int32)

    def add(self, event: StepEvent) -> None:
        """Add one step."""
        self.revealed[event.sequences, event.positions] = self.steps
        self.steps += 1
        self.full_steps += event.kind == "full"
        self.fills += not event.rows_plain
        self.committed += len(event.positions)
        for name in SUMMED:
            setattr(self, name, getattr(self, name) + getattr(event, name))
        self.ms_so_far.append(self.total_ms)
        if event.guided is not None:
            found = {name: getattr(event.guided, name) for name in SUMMED_GUIDED}
            self.guided.update(found | {"steps": 1})

    @property
    def total_ms(self) -> float:
        """Milliseconds of all steps so far."""
        return self.forward_ms + self.decide_ms

    @property
    def recomputed_share(self) -> float:
        """See the function of this name."""
        return recomputed_share(self.recomputed, self.steps, self.fills)

    def text_steps(self, start: int, tokens: int, sequence: int = 0) -> int:
        """Steps until the last of the `tokens` positions from `start` on was committed."""
        return steps_to_reveal(self.revealed[sequence, start : start + tokens])

    def metrics(
        self, tokens: int, text_steps: int, memory: dict[str, int | None]
    ) -> dict[str, Any]:
        """The metrics as plain data, with those of `memory`.

        `tokens` counts what the run decoded before the first end of text, `text_steps` the steps
        until the last of these was committed; `positions` in the result counts everything
        committed.
        """
        seconds = self.total_ms / 1e3
        return {
            "nfe": self.steps,
            "forwards": self.forwards,
            "full_steps": self.full_steps,
            "partial_steps": self.steps - self.full_steps,
            "total_ms": self.total_ms,
            "forward_ms": self.forward_ms,
            "decide_ms": self.decide_ms,
            "ms_per_step": self.total_ms / self.steps if self.steps else 0.0,
            "text_nfe": text_steps,
            "text_ms": self.ms_so_far[text_steps],
            "tokens": tokens,
            "positions": self.committed,
            "tokens_per_s": tokens / seconds if seconds else 0.0,
            "positions_per_s": self.committed / seconds if seconds else 0.0,
            "rows": self.rows,
            "rows_plain": self.rows_plain,
            "recomputed": self.recomputed_share,
            "gflops": float(self.flops.sum()) / 1e9,
            "gflops_per_position": float(self.flops.sum()) / 1e9 / max(self.committed, 1),
            **{f"gflops_{part}": float(n) / 1e9 for part, n in zip(PARTS, self.flops, strict=True)},
            **self._guider(tokens),
            **memory,
        }

    def _guider(self, tokens: int) -> dict[str, Any]:
        """The guider's work and cost, which the totals include; empty without a guider."""
        if not self.guided:
            return {}
        sums, forwards = self.guided, max(self.guided["forwards"], 1)
        return {
            "guider_ms": sums["ms"],
            "guider_prefill_ms": sums["prefill_ms"],
            "guider_share": sums["ms"] / self.total_ms if self.total_ms else 0.0,
            "guider_forwards": sums["forwards"],
            "guider_tokens": sums["fed"] + sums["prefilled"],
            "gflops_guider_prefill": sums["prefill_flops"] / 1e9,
            "tokens_per_nfe": tokens / self.steps,
            "tokens_per_guider_forward": tokens / forwards,
            "accepted": sums["accepted"] / sums["steps"],
            "fallback_rate": sums["fell_back"] / sums["steps"],
            "straddle_loss": sums["straddle_loss"],
        }
