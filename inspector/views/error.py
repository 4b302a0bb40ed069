"""Error: the distance between the values used and the exact values, at the probed steps."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from typing import Any

import numpy as np

from engine.core.drift_codes import DRIFTS, NOT_EVALUATED, decode
from engine.core.events import KINDS, QUANTITIES, SITES
from engine.trace.cells import EVERY
from engine.trace.trace import Trace
from inspector.page_data.packing import pack_arrays
from inspector.page_data.tokens import pieces
from inspector.views.queries import REUSED, dare_part, layer_codes

CELLS_AT_ONCE = 2**18  # whose drifts are in memory
ATTENTION, QUERY = SITES.index("attn"), QUANTITIES.index("q0")


def error(trace: Trace) -> dict[str, Any]:
    """The errors of a run recorded at level `probe`.

    Returns a document with:

    - `step` [E]: the probed steps;
    - `error` [E, L, 4, T]: drift codes of 1 - cosine, 255 for a row that was not in the forward
      or not recorded;
      `mean` [E, L, 4]: the mean over the rows that were;
    - for each compared row of logits: `row` (index into `step`), `position`, `tv` (total
      variation) and `top` (most likely id in the run, and in the exact forward);
    - `count`, `mean_tv`, `worst_tv`, `flips` [E]: these rows summed up by step;
    - `recall`, `chance` [E, L, 4]: see `recalls`;
    - `proxy` [E, L, 2], `true` [E, L]: see `bounds`. None without DARE, because no other method
      computes the queries of the rows that it reuses, and None if not all of it was recorded.

    Raises ValueError if the run was not probed.
    """
    check(trace)
    codes, facts = trace.cells("probe_error"), error_facts(trace)
    recall, chance = recalls(trace)
    bound = bounds(trace)
    own: dict[str, Any] = {
        "error": codes,
        "mean": mean_errors(codes),
        "recall": recall,
        "chance": chance,
    }
    own |= {"proxy": bound and bound[0], "true": bound and bound[1]}
    return pack_arrays(facts | predictions(trace, slice(None)) | own)


def check(trace: Trace) -> None:
    """Raise ValueError if the run was not probed."""
    arrays = trace.arrays()
    if not all(len(arrays[name]) for name in ("probe_step", "plan", "drift")):
        raise ValueError("This run was not probed: press Record and probe to compare it.")


def errors_of(trace: Trace, site: int, probes: slice = EVERY, layers: slice = EVERY) -> np.ndarray:
    """The array `error` of `error` of one site, uint8 [E, L, T], or a part of it."""
    return trace.cells("probe_error", probes, layers, slice(site, site + 1))[:, :, 0]


def error_facts(trace: Trace) -> dict[str, np.ndarray]:
    """The arrays `step`, `count`, `mean_tv`, `worst_tv` and `flips` of `error`."""
    arrays = trace.arrays()
    steps, rows = arrays["probe_step"], arrays["probe_row"]
    wrong = arrays["probe_top"][:, 0] != arrays["probe_top"][:, 1]
    count = np.bincount(rows, minlength=len(steps))
    total = np.bincount(rows, arrays["probe_tv"], len(steps))
    worst = np.zeros(len(steps), np.float32)
    np.maximum.at(worst, rows, arrays["probe_tv"])
    return {
        "step": steps,
        "count": count.astype(np.int32),
        "mean_tv": np.where(count, total / np.maximum(count, 1), np.nan).astype(np.float32),
        "worst_tv": worst,
        "flips": np.bincount(rows[wrong], minlength=len(steps)).astype(np.int32),
    }


def predictions(trace: Trace, part: Any) -> dict[str, Any]:
    """`row`, `position`, `tv`, `top` and `pieces` of `error`, of the rows that `part` takes."""
    arrays = trace.arrays()
    names = ("row", "position", "tv", "top")
    found: dict[str, Any] = {name: arrays[f"probe_{name}"][part] for name in names}
    return found | {"pieces": pieces(trace.pieces, np.unique(found["top"]).tolist())}


def mean_errors(codes: np.ndarray) -> np.ndarray:
    """Mean of the drifts of `codes` [E, ..., T] over known rows, float32 [E, ...]."""
    rows = codes.reshape(-1, codes.shape[-1])
    means = np.empty(len(rows), np.float32)
    at_once = CELLS_AT_ONCE // codes.shape[-1]
    for first in range(0, len(rows), at_once):
        part = slice(first, first + at_once)
        means[part] = nan_means(DRIFTS[rows[part]])
    return means.reshape(codes.shape[:-1])


def nan_means(values: np.ndarray) -> np.ndarray:
    """Mean over the last axis without NaN values, float32; NaN if all values are NaN."""
    known = ~np.isnan(values)
    count = known.sum(-1)
    sums = np.where(known, values, 0).sum(-1)
    return np.where(count > 0, sums / np.maximum(count, 1), np.nan).astype(np.float32)


def tan_half_angle(drift: np.ndarray) -> np.ndarray:
    """Tangent of half the angle between two vectors, where `drift` is 1 - their cosine."""
    return np.sqrt(drift / np.maximum(2 - drift, 1e-9))


def recalls(
    trace: Trace, sites: Sequence[int] = range(len(SITES))
) -> tuple[np.ndarray, np.ndarray]:
    """Recall of the choice of rows to recompute, and the recall of a random choice, by site.

    Consider the rows that could be reused: a value was cached before the step, and no refresh of
    their whole region was due. Of these, k were recomputed. Recall is the share of these k rows
    that are among the k rows whose cached value was farthest from the exact one. Chance is the
    expected recall of a random choice. Both are float32 [E, L, sites], and NaN where all rows or
    none were recomputed.
    """
    arrays = trace.arrays()
    steps = arrays["probe_step"]
    free = np.ones((len(steps), len(arrays["canvas"])), bool)
    if len(arrays["planned"]):
        due = arrays["planned"][steps] == KINDS.index("full")
        free = ~(trace.region_rows(steps) & due[:, :, None]).any(1)
    out = np.full((2, len(steps), trace.layers, len(sites)), np.nan, np.float32)
    for layer, (place, site) in product(range(trace.layers), enumerate(sites)):
        part = slice(layer, layer + 1), slice(site, site + 1)
        moved = trace.cells("probe_moved", layers=part[0], quantities=part[1])[:, 0, 0]
        chosen = trace.recompute_map((steps, layer, site))
        open_ = free & (moved != NOT_EVALUATED)
        for probe, own in enumerate(open_):
            out[:, probe, layer, place] = recall_at_k(moved[probe][own], chosen[probe][own])
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


def bounded_part(trace: Trace) -> str | None:
    """The name of the run's DARE method; None if `bounds` has nothing to compute.

    That is without DARE, or if the drift of queries was not recorded in every step, or the error
    of the attention output not at all.
    """
    arrays = trace.arrays()
    recorded = {QUERY, ATTENTION} <= set(arrays["recorded_quantity"].tolist())
    whole = recorded and len(arrays["drift_step"]) == trace.steps
    return dare_part(trace) if whole else None


def bounds(trace: Trace) -> tuple[np.ndarray, np.ndarray] | None:
    """The quantity that bounds DARE's error, and the true error; None as in `bounded_part`.

    Proxy, float32 [E, L, 2]: for each row, the sum of `tan_half_angle` of the query drifts since
    it was last recomputed, averaged over rows (arXiv 2605.08134: up to constants, a bound of a
    layer's error). The two values are the smallest and the largest sum that the rounded drift
    codes allow. True, float32 [E, L]: the mean of `tan_half_angle` of the error of the attention
    output. Rows that were not in the forward, or not recorded, are left out of both.
    """
    if bounded_part(trace) is None:
        return None
    layers = [layer_bound(trace, layer) for layer in range(trace.layers)]
    proxy, true = zip(*layers, strict=True)
    return np.stack(proxy, 1), np.stack(true, 1)


def layer_bound(trace: Trace, layer: int) -> tuple[np.ndarray, np.ndarray]:
    """The proxy [E, 2] and the true error [E] of `bounds` in one layer of a run that has them."""
    arrays, part = trace.arrays(), bounded_part(trace)
    reused = ~trace.recompute_map((slice(None), layer, REUSED[part or ""]))
    codes = layer_codes(trace, layer)
    used = DRIFTS[errors_of(trace, ATTENTION, layers=slice(layer, layer + 1))[:, 0]]
    since, sums = np.zeros((2, codes.shape[-1])), np.zeros((2, *used.shape))
    rows = {int(step): row for row, step in enumerate(arrays["probe_step"])}
    for step in range(max(rows) + 1):
        since = (since + [angles.take(codes[step]) for angles in HALF_ANGLES]) * reused[step]
        if step in rows:
            sums[:, rows[step]] = since
    proxy = nan_means(np.where(np.isnan(used), np.nan, sums))
    return np.moveaxis(proxy, 0, -1), nan_means(tan_half_angle(used))


def _half_angle_range(codes: np.ndarray) -> np.ndarray:
    """The smallest and largest `tan_half_angle` that the codes allow, [2, *]; 0 for no drift."""
    ends = np.stack([decode(np.maximum(codes - 0.5, 0)), decode(np.minimum(codes + 0.5, 254))])
    return np.where(codes == NOT_EVALUATED, 0, tan_half_angle(ends))


HALF_ANGLES = _half_angle_range(np.arange(NOT_EVALUATED + 1))  # of every code
