"""Start: where a run that goes on from another one begins, as plain data."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

REMASK = -1


@dataclass(frozen=True)
class BranchStart:
    """A recorded step of a run to go on from, and what is changed on its canvas first.

    `trace` is the id under which the parent's trace is held; `step` is a step of it as
    Trace.canvas_at counts them; `edits` are pairs of an offset in the answer and a token id, or
    REMASK where the position is to be decoded anew. A RunSpec checks it.
    """

    trace: str
    step: int
    edits: tuple[tuple[int, int], ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Plain data: lists for tuples."""
        edits = [list(pair) for pair in self.edits]
        return {"trace": self.trace, "step": self.step, "edits": edits}
