"""Error: how far the values used lay from the exact ones, at the steps that were probed."""

from __future__ import annotations

from typing import Any

import numpy as np

from engine.core.drift_codes import NOTHING, decode
from engine.core.events import KINDS, QUANTITIES, SITES
from engine.trace.trace import Trace
from inspector.page_data.packing import packed
from inspector.page_data.tokens import pieces
from inspector.views.queries import REUSED, dare_part

ATTENTION = SITES.index("attn")


def error(trace: Trace) -> dict[str, Any]:
    """Errors of a run recorded at level `probe`; ValueError where it was not.

    `step` [E]; `error` [E, L, 4, T] codes of 1 - cosine, 255 where a row took no part, and `mean`
    [E, L, 4] over the rows that did. Rows of logits: `row` (index into `step`), `position`, `tv`,
    `top` (best id of the run, exact one), with `count`, `mean_tv`, `flips` [E] by step. `recall`
    and `chance` [E, L, 4]: see `recalls`. `proxy` [E, L, 2], `true` [E, L]: see `bounds`; None
    without DARE, since no other method computes the queries of rows that it reuses.
    """
    arrays = trace.arrays()
    steps = arrays["probe_step"]
    if not len(steps) or not len(arrays["plan"]) or not len(arrays["drift"]):
        raise ValueError("This run was not probed: press Record and probe to compare it.")
    wrong = arrays["probe_top"][:, 0] != arrays["probe_top"][:, 1]
    count = np.bincount(arrays["probe_row"], minlength=len(steps))
    total = np.bincount(arrays["probe_row"], arrays["probe_tv"], len(steps))
    flips = np.bincount(arrays["probe_row"][wrong], minlength=len(steps))
    recall, chance = recalls(trace)
    bound = bounds(trace)
    ids = np.unique(arrays["probe_top"]).tolist()
    return {
        "step": packed(steps),
        "error": packed(arrays["probe_error"]),
        "mean": packed(np.stack([means(decode(plane)) for plane in arrays["probe_error"]])),
        "row": packed(arrays["probe_row"]),
        "position": packed(arrays["probe_position"]),
        "tv": packed(arrays["probe_tv"]),
        "top": packed(arrays["probe_top"]),
        "pieces": pieces(trace.pieces, ids),
        "count": packed(count.astype(np.int32)),
        "mean_tv": packed(np.where(count, total / np.maximum(count, 1), np.nan).astype(np.float32)),
        "flips": packed(flips.astype(np.int32)),
        "recall": packed(recall),
        "chance": packed(chance),
        "proxy": None if bound is None else packed(bound[0]),
        "true": None if bound is None else packed(bound[1]),
    }


def means(values: np.ndarray) -> np.ndarray:
    """Mean of the last axis over what is not NaN, float32; NaN where nothing is."""
    known = ~np.isnan(values)
    count = known.sum(-1)
    sums = np.where(known, values, 0).sum(-1)
    return np.where(count > 0, sums / np.maximum(count, 1), np.nan).astype(np.float32)


def half(drift: np.ndarray) -> np.ndarray:
    """Tangent of half the angle between two vectors that are `drift` = 1 - cosine apart."""
    return np.sqrt(drift / np.maximum(2 - drift, 1e-9))


def recalls(trace: Trace) -> tuple[np.ndarray, np.ndarray]:
    """How well the rows to recompute were chosen: recall and chance, float32 [E, L, 4].

    Of the rows that could be reused (a value was kept before the step, and the clock does not
    renew their whole region) k were recomputed; recall is the share of them among the k rows
    whose kept value lay farthest from the exact one, chance what a blind choice would get. Both
    NaN where nothing or everything was recomputed.
    """
    arrays = trace.arrays()
    steps, moved = arrays["probe_step"], arrays["probe_moved"]
    chosen = trace.recompute_map()[steps]
    free = np.ones((len(steps), moved.shape[-1]), bool)
    if len(arrays["planned"]):
        due = arrays["planned"][steps] == KINDS.index("full")
        free = ~(trace.areas(steps) & due[:, :, None]).any(1)
    out = np.full((2, *moved.shape[:3]), np.nan, np.float32)
    for place in np.ndindex(moved.shape[:3]):
        open_ = free[place[0]] & (moved[place] != NOTHING)
        out[(slice(None), *place)] = recall_at_k(moved[place][open_], chosen[place][open_])
    return out[0], out[1]


def recall_at_k(moved: np.ndarray, chosen: np.ndarray) -> tuple[float, float]:
    """Share of the k chosen rows among the k that moved most, and k / n; NaN for k = 0 or n.

    Rows that moved as much as the k-th are as good as it.
    """
    n, k = len(chosen), int(chosen.sum())
    if k in (0, n):
        return np.nan, np.nan
    limit = np.partition(moved, n - k)[n - k]
    above = moved > limit
    hits = (above & chosen).sum() + min(((moved == limit) & chosen).sum(), k - above.sum())
    return float(hits / k), k / n


def bounds(trace: Trace) -> tuple[np.ndarray, np.ndarray] | None:
    """What DARE's bound rests on [E, L, 2] and the true error [E, L], float32; None without DARE.

    Proxy: the mean over rows of the sum of `half` of the query drifts since the row was last
    recomputed (arXiv 2605.08134, the bound of a layer's error up to constants), at least and at
    most, as the codes leave it open; true: the mean of `half` of the attention output's error.
    Rows that took no part are left out of both.
    """
    part = dare_part(trace)
    if part is None:
        return None
    arrays, fresh = trace.arrays(), trace.recompute_map()[:, :, REUSED[part]]
    codes = arrays["drift"][:, :, QUANTITIES.index("q0")]
    used = decode(arrays["probe_error"][:, :, ATTENTION])
    since, sums = np.zeros((2, *codes.shape[1:])), np.zeros((2, *used.shape))
    rows = {int(step): row for row, step in enumerate(arrays["probe_step"])}
    for step in range(len(codes)):
        since = np.where(fresh[step], 0, since + _span(codes[step]))
        if step in rows:
            sums[:, rows[step]] = since
    proxy = means(np.where(np.isnan(used), np.nan, sums))
    return np.moveaxis(proxy, 0, -1), means(half(used))


def _span(codes: np.ndarray) -> np.ndarray:
    """The least and the most that `half` of the drifts may be, [2, *]; 0 where there are none."""
    ends = np.stack([decode(np.maximum(codes - 0.5, 0)), decode(np.minimum(codes + 0.5, 254))])
    return np.where(codes == NOTHING, 0, half(ends))
