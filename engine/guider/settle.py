"""settle: how many tokens of one sequence's draft are committed, chunk after chunk."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from engine.guider.judge import Judge, Ruling


@dataclass(frozen=True)
class Draft:
    """The leading masks of a sequence and what is proposed there.

    `positions` [n] global, ascending; `ids` [n]; `p` [n] their probabilities, `surest` [n] the
    largest of any token; `canvas` [T] ids before the step and `masked` [T] bool; the answer
    begins at `start`.
    """

    positions: NDArray[np.int64]
    ids: NDArray[np.int64]
    p: NDArray[np.float64]
    surest: NDArray[np.float64]
    canvas: NDArray[np.int64]
    masked: NDArray[np.bool_]
    start: int

    def chunk(self, begin: int, size: int) -> tuple[list[int], list[int], list[bool], list[float]]:
        """Answer before mask number `begin`, then of `size` masks from it on: ids, masked, surest.

        Given tokens in between are part of it; their `surest` is 1.
        """
        part = slice(begin, begin + size)
        filled, surest = self.canvas.copy(), np.ones(len(self.canvas))
        filled[self.positions], surest[self.positions] = self.ids, self.surest
        first, last = self.positions[begin], self.positions[part][-1]
        span = slice(first, last + 1)
        return (
            filled[self.start : first].tolist(),
            filled[span].tolist(),
            self.masked[span].tolist(),
            surest[span].tolist(),
        )

    def after(self, ids: NDArray[np.int64]) -> list[int]:
        """The answer's unbroken run of known tokens once the first masks are filled with `ids`."""
        filled, masked = self.canvas.copy(), self.masked.copy()
        filled[self.positions[: len(ids)]] = ids
        masked[self.positions[: len(ids)]] = False
        left = np.flatnonzero(masked)
        return filled[self.start : left[0] if len(left) else None].tolist()


@dataclass(frozen=True)
class Settled:
    """What came of a draft: the first masks get `ids`; `k` of them are accepted drafts.

    `rulings` pair each chunk's first mask with what was said of it.
    """

    draft: Draft
    ids: NDArray[np.int64]
    k: int
    stopped: bool
    rulings: tuple[tuple[int, Ruling], ...]


def settle(judge: Judge, draft: Draft, block: int, several: bool, fallback: str) -> Settled:
    """Judge a draft in chunks of `block` masks, on to the next while `several` and all is accepted.

    Where nothing is, one token is committed: the draft's (`fallback` dlm) or the guider's (ar).
    """
    pair, rulings, k = judge.pair, [], 0
    while True:
        begin = k
        ruling = judge.rule_on(*draft.chunk(begin, block + pair.tail), most=block)
        rulings.append((begin, ruling))
        k += ruling.accepted
        ended = k > 0 and draft.ids[k - 1] in pair.stops
        if not several or ruling.accepted < block or ended or k == len(draft.ids):
            break
    ids = draft.ids[: max(k, 1)].copy()
    if k == 0 and fallback == "ar":
        heard = rulings[0][1].heard
        assert heard is not None, "with a shared vocabulary every draft is judged"
        own = int(heard.top[0])
        ids[0] = pair.stops[0] if own == pair.guider_stops[0] else own
    judge.keep(draft.after(ids))
    return Settled(draft, ids, k, bool(ids[-1] in pair.stops), tuple(rulings))
