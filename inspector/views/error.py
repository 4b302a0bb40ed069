"""Error: the distance between the values used and the exact values, at the probed steps."""

from __future__ import annotations

from typing import Any

import numpy as np

from engine.core.drift_codes import NOT_EVALUATED, decode
from engine.core.events import KINDS, QUANTITIES, SITES
from engine.trace.trace import Trace
from inspector.page_data.packing import packed
from inspector.page_data.tokens import pieces
from inspector.views.queries import REUSED, dare_part

ATTENTION, QUERY = SITES.index("attn"), QUANTITIES.index("q0")


def error(trace: Trace) -> dict[str, Any]:
    """The errors of a run recorded at level `probe`.

    Returns a document with:

    - `step` [E]: the probed steps;
    - `error` [E, L, 4, T]: drift codes of 1 - cosine, 255 for a row that was not in the forward;
      `mean` [E, L, 4]: the mean over the rows that were;
    - for each compared row of logits: `row` (index into `step`), `position`, `tv` (total
      variation) and `top` (most likely id in the run, and in the exact forward);
    - `count`, `mean_tv`, `flips` [E]: these rows summed up by step;
    - `recall`, `chance` [E, L, 4]: see `recalls`;
    - `proxy` [E, L, 2], `true` [E, L]: see `bounds`. None without DARE, because no other method
      computes the queries of the rows that it reuses.

    Raises ValueError if the run was not probed.
    """
    arrays = trace.arrays()
    steps = arrays["probe_step"]
    if not len(steps) or not len(arrays["plan"]) or not len(arrays["drift"]):
        raise ValueError("This run was not probed: press Record and probe to compare it.")
    errors = trace.cells("probe_error")
    wrong = arrays["probe_top"][:, 0] != arrays["probe_top"][:, 1]
    count = np.bincount(arrays["probe_row"], minlength=len(steps))
    total = np.bincount(arrays["probe_row"], arrays["probe_tv"], len(steps))
    flips = np.bincount(arrays["probe_row"][wrong], minlength=len(steps))
    recall, chance = recalls(trace)
    bound = bounds(trace)
    ids = np.unique(arrays["probe_top"]).tolist()
    return {
        "step": packed(steps),
        "error": packed(errors),
        "mean": packed(np.stack([nan_means(decode(plane)) for plane in errors])),
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


def nan_means(values: np.ndarray) -> np.ndarray:
    """Mean over the last axis without NaN values, float32; NaN if all values are NaN."""
    known = ~np.isnan(values)
    count = known.sum(-1)
    sums = np.where(known, values, 0).sum(-1)
    return np.where(count > 0, sums / np.maximum(count, 1), np.nan).astype(np.float32)


def tan_half_angle(drift: np.ndarray) -> np.ndarray:
    """Tangent of half the angle between two vectors, where `drift` is 1 - their cosine."""
    return np.sqrt(drift / np.maximum(2 - drift, 1e-9))


def recalls(trace: Trace) -> tuple[np.ndarray, np.ndarray]:
    """Recall of the choice of rows to recompute, and the recall of a random choice.

    Consider the rows that could be reused: a value was cached before the step, and no refresh of
    their whole region was due. Of these, k were recomputed. Recall is the share of these k rows
    that are among the k rows whose cached value was farthest from the exact one. Chance is the
    expected recall of a random choice. Both are float32 [E, L, 4], and NaN where all rows or none
    were recomputed.
    """
    arrays = trace.arrays()
    steps, moved = arrays["probe_step"], trace.cells("probe_moved")
    chosen = trace.recompute_map()[steps]
    free = np.ones((len(steps), moved.shape[-1]), bool)
    if len(arrays["planned"]):
        due = arrays["planned"][steps] == KINDS.index("full")
        free = ~(trace.region_rows(steps) & due[:, :, None]).any(1)
    out = np.full((2, *moved.shape[:3]), np.nan, np.float32)
    for place in np.ndindex(moved.shape[:3]):
        open_ = free[place[0]] & (moved[place] != NOT_EVALUATED)
        out[(slice(None), *place)] = recall_at_k(moved[place][open_], chosen[place][open_])
    return out[0], out[1]


def recall_at_k(moved: np.ndarray, chosen: np.ndarray) -> tuple[float, float]:
    """Share of the k chosen rows that are among the k with the largest drift, and k / n.

    Rows that tie with the k-th count as hits. Both values are NaN for k = 0 and k = n.
    """
    n, k = len(chosen), int(chosen.sum())
    if k in (0, n):
        return np.nan, np.nan
    limit = np.partition(moved, n - k)[n - k]
    above = moved > limit
    hits = (above & chosen).sum() + min(((moved == limit) & chosen).sum(), k - above.sum())
    return float(hits / k), k / n


def bounds(trace: Trace) -> tuple[np.ndarray, np.ndarray] | None:
    """The quantity that bounds DARE's error, and the true error.

    None without DARE, and where the drift of queries or the error of the attention output was not
    recorded in every step.

    Proxy, float32 [E, L, 2]: for each row, the sum of `tan_half_angle` of the query drifts since
    it was last recomputed, averaged over rows (arXiv 2605.08134: up to constants, a bound of a
    layer's error). The two values are the smallest and the largest sum that the rounded drift
    codes allow. True, float32 [E, L]: the mean of `tan_half_angle` of the error of the attention
    output. Rows that were not in the forward are left out of both.
    """
    part, arrays = dare_part(trace), trace.arrays()
    needed = {QUERY, ATTENTION} <= set(arrays["recorded_quantity"].tolist())
    if part is None or not needed or len(arrays["drift_step"]) < trace.steps:
        return None
    fresh = trace.recompute_map()[:, :, REUSED[part]]
    codes = trace.cells("drift")[:, :, QUERY]
    used = decode(trace.cells("probe_error")[:, :, ATTENTION])
    since, sums = np.zeros((2, *codes.shape[1:])), np.zeros((2, *used.shape))
    rows = {int(step): row for row, step in enumerate(arrays["probe_step"])}
    for step in range(len(codes)):
        since = np.where(fresh[step], 0, since + _half_angle_range(codes[step]))
        if step in rows:
            sums[:, rows[step]] = since
    proxy = nan_means(np.where(np.isnan(used), np.nan, sums))
    return np.moveaxis(proxy, 0, -1), nan_means(tan_half_angle(used))


def _half_angle_range(codes: np.ndarray) -> np.ndarray:
    """The smallest and largest `tan_half_angle` that the codes allow, [2, *]; 0 for no drift."""
    ends = np.stack([decode(np.maximum(codes - 0.5, 0)), decode(np.minimum(codes + 0.5, 254))])
    return np.where(codes == NOT_EVALUATED, 0, tan_half_angle(ends))
