"""Queries: drift of the first head's query, and the rows reused (DARE, figures 3 and 5)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from engine.core.drift_codes import NOT_EVALUATED, decode
from engine.core.events import QUANTITIES, SITES
from engine.trace.trace import Trace
from inspector.page_data.packing import packed

REUSED = {"dare_kv": SITES.index("k"), "dare_o": SITES.index("attn")}
PER_DECADE = 6


def queries(trace: Trace) -> dict[str, Any]:
    """The query drift of a run recorded at level `layers`.

    Returns a document with:

    - `q0` [S, L, T]: drift codes of the first head's query from step to step;
    - `threshold`, `aimed` [L]: DARE's threshold and target share of reuse (-1 and 0 if the layer
      reuses nothing), None for other methods;
    - `dare`: whether the cache is DARE; `site`: the site that it reuses, V for other methods;
    - `anchor`: whether DARE compares a query with the row's last refresh and not, as `q0` does,
      with the previous step;
    - `counts` [L, 4, 2, bins]: number of rows by drift, first recomputed, then reused ones; `edges`
      are the borders of the bins;
    - `reuse` [L, 4]: share of rows reused; with DARE of the rows whose queries were compared,
      otherwise of all rows after the first step.

    Raises ValueError if the run has no drifts.
    """
    arrays = trace.arrays()
    if not len(arrays["drift"]) or not len(arrays["plan"]):
        raise ValueError("This run has no recorded drift: press Record to see the query drift.")
    codes = trace.cells("drift")[:, :, QUANTITIES.index("q0")]
    kept, part = ~trace.recompute_map(), dare_part(trace)
    found = trace.meta.get("facts")
    facts: Mapping[str, Any] = found if isinstance(found, Mapping) else {}
    edges = bins()
    return {
        "q0": packed(codes),
        "threshold": _of_layers(facts.get("threshold"), codes.shape[1]),
        "aimed": _of_layers(facts.get("reuse"), codes.shape[1]),
        "dare": part is not None,
        "site": REUSED.get(part or "", SITES.index("v")),
        "anchor": _anchor(trace, part),
        "edges": packed(_drifts(edges)),
        "counts": packed(histogram(codes, kept, edges)),
        "reuse": packed(reuse(codes, kept) if part else _mean_reuse(kept)),
    }


def dare_part(trace: Trace) -> str | None:
    """The name of the DARE method in the run's cache, alone or stacked; None without DARE."""
    parts = str(trace.meta["spec"].get("cache", "none"))[:60].split("+")
    return next((part for part in parts if part in REUSED), None)


def bins() -> np.ndarray:
    """Edges of the histogram as drift codes: at most PER_DECADE bins per decade."""
    edges, last = [0], decode(0.5)
    for code in range(1, NOT_EVALUATED):
        low = decode(code - 0.5)
        if code == 1 or low / last >= 10 ** (1 / PER_DECADE):
            edges.append(code)
            last = low
    return np.array([*edges, NOT_EVALUATED])


def histogram(codes: np.ndarray, kept: np.ndarray, edges: np.ndarray) -> np.ndarray:
    """Number of rows by drift, int32 [L, 4, 2, bins]: recomputed and reused rows.

    Args:
        codes: drift codes [S, L, T].
        kept: whether a row was reused at a site, bool [S, L, 4, T].
        edges: borders of the bins as codes.
    """
    layers, sites = codes.shape[1], kept.shape[2]
    out = np.zeros((layers, sites, 2, len(edges) - 1), np.int32)
    place = np.searchsorted(edges, np.arange(NOT_EVALUATED), "right") - 1
    for layer in range(layers):
        seen = codes[:, layer] != NOT_EVALUATED
        where = place[codes[:, layer][seen]]
        for site in range(sites):
            reused = kept[:, layer, site][seen]
            for flag in (False, True):
                out[layer, site, int(flag)] = np.bincount(
                    where[reused == flag], None, len(edges) - 1
                )
    return out


def reuse(codes: np.ndarray, kept: np.ndarray) -> np.ndarray:
    """Share of reused rows among the rows with a drift, float32 [L, 4]; NaN if there are none."""
    seen = (codes != NOT_EVALUATED)[:, :, None]
    count = seen.sum((0, 3))
    hits = (kept & seen).sum((0, 3))
    return np.where(count > 0, hits / np.maximum(count, 1), np.nan).astype(np.float32)


def _mean_reuse(kept: np.ndarray) -> np.ndarray:
    if len(kept) < 2:
        return np.full(kept.shape[1:3], np.nan, np.float32)
    return kept[1:].mean((0, 3), dtype=np.float32)


def _drifts(edges: np.ndarray) -> np.ndarray:
    """Edges of the histogram as drifts. The first bin, which contains 0, begins at 1/3 its end."""
    inner = decode(edges[1:] - 0.5)
    return np.array([inner[0] / 3, *inner], np.float32)


def _of_layers(found: Any, layers: int) -> list[float] | None:
    fits = isinstance(found, list) and len(found) == layers
    return found if fits else None


def _anchor(trace: Trace, part: str | None) -> bool:
    knobs = trace.meta["spec"].get("knobs")
    return isinstance(knobs, Mapping) and knobs.get(f"{part}.ref") == "anchor"
