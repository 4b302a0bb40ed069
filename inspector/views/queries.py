"""Queries: drift of the first head's query, and the rows reused (DARE, figures 3 and 5)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from engine.core.drift_codes import NOT_EVALUATED, decode
from engine.core.events import SITES
from engine.trace.cells import EVERY
from engine.trace.trace import Trace
from inspector.page_data.packing import pack_arrays
from inspector.page_data.row_counts import popcount, step_windows
from inspector.views.drift import drift_of
from inspector.views.schedule import rows_done

REUSED = {"dare_kv": SITES.index("k"), "dare_o": SITES.index("attn")}
PER_DECADE = 6
NEVER = 65_535


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
      otherwise of all rows that a run without a cache computes, after the first step;
    - `calls`: number of commit calls. `counts` and `reuse` leave them out, because a run without a
      cache makes none.

    Raises ValueError if the run has no drifts.
    """
    codes = query_codes(trace)
    counts = np.stack([layer_histogram(trace, layer) for layer in range(trace.layers)])
    arrays = {"q0": codes, "counts": counts, "reuse": reuse_by_layer(trace)}
    return pack_arrays(query_facts(trace) | arrays)


def check(trace: Trace) -> None:
    """Raise ValueError if the run has no drifts or no plans."""
    arrays = trace.arrays()
    if not len(arrays["drift"]) or not len(arrays["plan"]):
        raise ValueError("This run has no recorded drift: press Record to see the query drift.")


def query_codes(trace: Trace, layers: slice = EVERY) -> np.ndarray:
    """Drift codes of the first head's query [S, L, T]; ValueError as in `check`."""
    check(trace)
    return drift_of(trace, "q0", layers=layers)


def layer_codes(trace: Trace, layer: int) -> np.ndarray:
    """The codes of `query_codes` in one layer [S, T]."""
    return query_codes(trace, slice(layer, layer + 1))[:, 0]


def query_facts(trace: Trace) -> dict[str, Any]:
    """What `queries` returns except `q0`, `counts` and `reuse`."""
    check(trace)
    layers, part = trace.layers, dare_part(trace)
    found = trace.meta.get("facts")
    facts: Mapping[str, Any] = found if isinstance(found, Mapping) else {}
    return {
        "threshold": _of_layers(facts.get("threshold"), layers),
        "aimed": _of_layers(facts.get("reuse"), layers),
        "dare": part is not None,
        "site": REUSED.get(part or "", SITES.index("v")),
        "anchor": _anchor(trace, part),
        "edges": _drifts(bins()),
        "calls": int(trace.commit_calls.sum()),
    }


def layer_histogram(trace: Trace, layer: int) -> np.ndarray:
    """The part of `counts` in `queries` that belongs to one layer, int32 [4, 2, bins]."""
    codes, edges, counted = layer_codes(trace, layer), bins(), ~trace.commit_calls
    parts = (
        histogram(
            codes[steps][counted[steps]],
            ~trace.recompute_map((steps, layer))[counted[steps]],
            edges,
        )
        for steps in step_windows(trace.steps)
    )
    return np.stack(list(parts)).sum(0, dtype=np.int32)


def reuse_by_layer(trace: Trace) -> np.ndarray:
    """The array `reuse` of `queries`."""
    check(trace)
    arrays, layers = trace.arrays(), range(trace.layers)
    counted = ~trace.commit_calls
    if dare_part(trace):
        plan = arrays["plan"]
        return np.stack(
            [reuse(layer_codes(trace, layer)[counted], plan[counted, layer]) for layer in layers]
        )
    counted[:1] = False
    done = rows_done(trace, 0, len(arrays["canvas"]))[counted]
    if not len(done):
        return np.full(done.shape[1:], np.nan, np.float32)
    return (1 - done.sum(0) / trace.rows_in_sight()[counted].sum()).astype(np.float32)


def ages(fresh: np.ndarray) -> np.ndarray:
    """Steps since a row was recomputed, uint16 [S, T]; NEVER before its first time.

    `fresh` [S, T] bool says whether a step recomputed the row.
    """
    out = np.empty(fresh.shape, np.uint16)
    age = np.full(fresh.shape[1:], NEVER, np.uint16)
    for row, reused in zip(out, ~fresh, strict=True):
        row[:] = (age + (age != NEVER)) * reused
        age = row
    return out


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
    """Number of rows of a layer by drift, int32 [4, 2, bins]: recomputed and reused rows.

    Args:
        codes: drift codes [S, T].
        kept: whether a row was reused at a site, bool [S, 4, T].
        edges: borders of the bins as codes.
    """
    sites = range(kept.shape[1])
    combined = codes.astype(np.uint16)  # bit 8 and those above it: the sites that were reused
    for site in sites:
        combined |= kept[:, site].astype(np.uint16) << (8 + site)
    counts = np.bincount(combined.ravel(), minlength=256 << len(sites)).reshape(-1, 256)
    binned = np.add.reduceat(counts[:, :NOT_EVALUATED], edges[:-1], axis=1)
    held = np.arange(len(counts))
    flags = [[held >> site & 1 == flag for flag in (0, 1)] for site in sites]
    return np.array([[binned[own].sum(0) for own in pair] for pair in flags], np.int32)


def reuse(codes: np.ndarray, plan: np.ndarray) -> np.ndarray:
    """Share of reused rows among a layer's rows with a drift, float32 [4]; NaN if there are none.

    Args:
        codes: drift codes [S, T].
        plan: bits of the rows recomputed, uint8 [S, 4, T / 8].
    """
    seen = np.packbits(codes != NOT_EVALUATED, axis=-1)[:, None]
    count, hits = popcount(seen).sum(), popcount(seen & ~plan).sum(0)
    return np.where(count > 0, hits / max(count, 1), np.nan).astype(np.float32)


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
