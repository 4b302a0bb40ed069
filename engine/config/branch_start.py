"""BranchStart: the recorded step from which a run continues, and edits of its canvas."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

REMASK = -1
MAX_STEP = 2**31 - 1
MAX_ID = 2**31 - 1  # of tokens
_TRACE_ID = re.compile(r"[A-Za-z0-9_.~-]{1,64}")

AnswerTokens = tuple[tuple[int, int], ...]


@dataclass(frozen=True)
class BranchStart:
    """A step of a recorded run to continue from, and changes made to its canvas first.

    `trace` is the id of the parent's trace; `step` is a step as Trace.canvas_at counts them;
    `edits` are pairs of an offset in the answer and a token id, or REMASK to mask the position
    again. `checked_start` checks the values.
    """

    trace: str
    step: int
    edits: AnswerTokens = ()

    def to_dict(self) -> dict[str, Any]:
        """Plain data, with lists instead of tuples."""
        edits = [list(pair) for pair in self.edits]
        return {"trace": self.trace, "step": self.step, "edits": edits}


def checked_start(start: Any, length: int, fixed: AnswerTokens = ()) -> BranchStart | None:
    """A valid BranchStart from one or from its plain data; None for None.

    `length` is that of the answer; edits cannot change its `fixed` tokens. Raises ValueError naming
    `start.trace`, `start.step` or `start.edits`.
    """
    if start is None:
        return None
    given = vars(start) if isinstance(start, BranchStart) else start
    if not isinstance(given, Mapping) or not {"trace", "step"} <= set(given):
        raise ValueError("start: expected a mapping of trace, step and edits")
    unknown = sorted(str(key) for key in set(given) - {"trace", "step", "edits"})
    if unknown:
        raise ValueError(f"start.{unknown[0]}: unknown field; the fields are edits, step, trace")
    trace, step = given["trace"], given["step"]
    if not isinstance(trace, str) or not _TRACE_ID.fullmatch(trace):
        raise ValueError(
            "start.trace: expected the id of a trace, 1 to 64 letters, digits and _ . ~ -"
        )
    if type(step) is not int or not 0 <= step <= MAX_STEP:
        raise ValueError(f"start.step: expected a whole number from 0 to {MAX_STEP}")
    needs = f"and a token id, or {REMASK} to mask it again"
    edits = checked_tokens("start.edits", given.get("edits", ()), length, REMASK, needs)
    both = sorted({offset for offset, _ in edits} & {offset for offset, _ in fixed})
    if both:
        raise ValueError(f"start.edits: offset {both[0]} is given by fixed and cannot be edited")
    return BranchStart(trace, step, edits)


def checked_tokens(
    field: str, given: Any, length: int, min_id: int = 0, needs: str = "and a token id"
) -> AnswerTokens:
    """Pairs of a distinct offset below `length` and an id of at least `min_id`, sorted.

    Raises ValueError naming `field`; `needs` describes a valid id in it.
    """
    try:
        pairs = tuple(sorted((offset, token) for offset, token in given))
    except (TypeError, ValueError):
        raise ValueError(f"{field}: expected pairs of offset and token id") from None
    for offset, token in pairs:
        whole = type(offset) is int and type(token) is int
        if not whole or not 0 <= offset < length or not min_id <= token <= MAX_ID:
            raise ValueError(
                f"{field}: ({offset!r}, {token!r}) needs an offset from 0 to {length - 1} {needs}"
            )
    if len({offset for offset, _ in pairs}) < len(pairs):
        raise ValueError(f"{field}: an offset occurs twice; give each offset once")
    return pairs
