"""Verdicts: the guider's verdict on each drafted token, and the guider tokens that spell it."""

from __future__ import annotations

import numpy as np

from engine.core.events import GUIDED
from engine.trace.trace import Trace
from inspector.page_data.timeline import places
from inspector.page_data.tokens import known, stop_ids

NAMES = ("accepted", "mismatch", "agreed", "refused", "fallback", "stop", "filled", "untold")
ACCEPTED, MISMATCH, AGREED, REFUSED, FALLBACK, STOP, FILLED, UNTOLD = range(len(NAMES))
NOT_DRAFTED = 255
NO_TOKEN = -1


def column(trace: Trace, name: str) -> np.ndarray:
    """The count `name`, one of `events.GUIDED`, of every step, int64 [S]."""
    counts: np.ndarray = trace.arrays()["guided_count"][:, GUIDED.index(name)].astype(np.int64)
    return counts


def check(trace: Trace) -> None:
    """Raise ValueError if the drafts do not fit the answer of the trace."""
    drafted, index = column(trace, "drafted"), places(trace)
    wrong = (drafted > (index >= 0).sum()) | (column(trace, "accepted") > drafted)
    if wrong.any() or (index[trace.arrays()["draft_position"]] < 0).any():
        raise ValueError("trace: the guider's verdicts do not fit the answer; export it again")


def cells(trace: Trace) -> np.ndarray:
    """The verdict of every step on every answer token as a code into NAMES, uint8 [S, G].

    NOT_DRAFTED marks tokens that were not drafted. If the verdicts were not recorded, tokens after
    the first mismatch are `untold`: their verdict is unknown.
    """
    arrays, index = trace.arrays(), places(trace)
    shown, when = np.flatnonzero(index >= 0), trace.step_map()
    here = when[shown]
    given = known(trace)[shown]
    out = np.full((trace.steps, len(shown)), NOT_DRAFTED, np.uint8)
    drafted, accepted = column(trace, "drafted"), column(trace, "accepted")
    starts = np.searchsorted(arrays["draft_step"], np.arange(trace.steps + 1))
    for step in range(trace.steps):
        judged = slice(*starts[step : step + 2])
        if judged.stop > judged.start:
            columns, ok = index[arrays["draft_position"][judged]], arrays["draft_ok"][judged]
            out[step, columns] = verdicts(ok, int(accepted[step]))
        else:
            open_ = np.flatnonzero(~given & ((here < 0) | (here >= step)))[: drafted[step]]
            out[step, open_] = verdicts_from_counts(len(open_), int(accepted[step]))
    _mark_commits(trace, out, index)
    return out


def verdicts(ok: np.ndarray, accepted: int) -> np.ndarray:
    """Codes of a recorded draft [n].

    Args:
        ok: whether the guider agrees to each token, bool [n].
        accepted: number of leading tokens that were accepted.
    """
    codes = np.where(ok, AGREED, REFUSED)
    codes[:accepted] = ACCEPTED
    if accepted < len(ok) and not ok[accepted]:
        codes[accepted] = MISMATCH
    return codes


def verdicts_from_counts(drafted: int, accepted: int) -> np.ndarray:
    """Codes of a draft [drafted] of which only the counts are known."""
    codes = np.full(drafted, UNTOLD)
    codes[:accepted] = ACCEPTED
    codes[accepted : accepted + 1] = MISMATCH
    return codes


def _mark_commits(trace: Trace, out: np.ndarray, index: np.ndarray) -> None:
    """Overwrite the codes of fallback tokens, the end of text and the tokens filled in after it."""
    arrays = trace.arrays()
    step, place = arrays["commit_step"], index[arrays["commit_position"]]
    filled = ~np.isfinite(arrays["commit_confidence"])
    fell = column(trace, "fell_back") > 0
    ends = np.isin(arrays["commit_id"], stop_ids(trace.meta["model"])) & ~filled
    ends &= column(trace, "stopped")[step] > 0
    for chosen, code in ((fell[step] & ~filled, FALLBACK), (ends, STOP), (filled, FILLED)):
        chosen = chosen & (place >= 0)
        out[step[chosen], place[chosen]] = code


def spans(trace: Trace, part: range | None = None) -> np.ndarray:
    """The guider tokens [first, last] that spell each drafted token, indices int32 [J, 2].

    The indices point into `guider_id`. Tokens are matched by their bytes. [NO_TOKEN, NO_TOKEN] if
    the guider's probability is unknown, or the step is not in `part` (None: all steps). A token
    without bytes is an end of text and is matched with the guider's last token, which has no bytes
    either.
    """
    arrays = trace.arrays()
    out = np.full((len(arrays["draft_id"]), 2), NO_TOKEN, np.int32)
    steps = np.arange(trace.steps + 1)
    drafts = np.searchsorted(arrays["draft_step"], steps)
    tokens = np.searchsorted(arrays["guider_step"], steps)
    sizes = _sizes(arrays["draft_id"], trace)
    for step in range(trace.steps) if part is None else part:
        mine, theirs = slice(*drafts[step : step + 2]), slice(*tokens[step : step + 2])
        highs, ends = (arrays[f"{n}_end"][at].astype(np.int64)
                       for n, at in (("draft", mine), ("guider", theirs)))  # fmt: skip
        if len(ends) and (np.diff(ends) >= 0).all():
            found = _covering(highs, sizes[mine], ends) + theirs.start
            judged = ~np.isnan(arrays["draft_p_g"][mine])
            out[mine] = np.where(judged[:, None], found, NO_TOKEN)
    return out


def _covering(highs: np.ndarray, sizes: np.ndarray, ends: np.ndarray) -> np.ndarray:
    """First and last guider token that overlap each draft token, [n, 2].

    Args:
        highs: end of each draft token in bytes [n].
        sizes: length of each draft token in bytes [n].
        ends: end of each guider token in bytes [m].
    """
    lows = np.maximum(highs - sizes, np.append(0, highs[:-1]))
    starts = np.append(0, ends[:-1])
    first = np.searchsorted(ends, lows, "right")
    last = np.searchsorted(starts, highs, "left") - 1
    found = np.stack((first, np.maximum(last, first)), 1)
    found[highs == lows] = len(ends) - 1
    return np.minimum(found, len(ends) - 1)


def _sizes(ids: np.ndarray, trace: Trace) -> np.ndarray:
    """Length of each drafted token in bytes [J]: 0 for an end of text, the maximum if unknown."""
    stops, unknown = set(stop_ids(trace.meta["model"])), np.iinfo(np.int32).max
    distinct, where = np.unique(ids, return_inverse=True)
    lengths = [0 if int(i) in stops else len(trace.pieces.get(int(i), b"")) or unknown
               for i in distinct]  # fmt: skip
    return np.array(lengths, np.int64)[where] if len(ids) else np.zeros(0, np.int64)
