"""Drift counts: the share of evaluated rows whose drift is above a threshold, by layer and step."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import plotly.graph_objects as go
from plotly.subplots import make_subplots

from engine.core.drift_codes import NOT_EVALUATED, decode
from engine.trace.trace import Trace
from inspector.figures import style
from inspector.figures.checks import QUANTITY_NAMES, check_choice, check_drift
from inspector.views.drift import drift_of
from inspector.views.why import chooses_prompt_rows

ROWS = ("all", "answer")
TICKS = {1e-3: "≤ 0.1 %", 1e-2: "1 %", 1e-1: "10 %", 1.0: "100 %"}


def figure(
    trace: Trace, *, quantity: str = "v", threshold: float = 0.05, rows: str = "all"
) -> go.Figure:
    """Share of rows whose drift is above a threshold: compare figure 2 of SPA-Cache.

    Left, a heat map of L layers (down) by S steps: the share of the rows evaluated in that layer
    and step, on a log scale from 0.1 % to 100 %. Cells in which no row was evaluated, or none was
    recorded, are blank.
    Right, the same share of each layer over all steps, in percent, and the method's budget of each
    layer, if it has one. In plain decoding every row is evaluated from the second step on; in a
    cached run only the recomputed rows can be counted.

    Args:
        trace: a run recorded at level `layers` or above.
        quantity: `k`, `v`, `attn` (attention output), `ffn` (feed-forward output) or `q0` (query
            of the first head).
        threshold: a drift, 1 - cosine, from 0 to 2 (no unit); larger drifts are counted.
        rows: `all`, or `answer` for the rows that predict the tokens of the answer.

    Returns:
        A figure whose first trace is the heat map, with `z` float32 [L, S].

    Raises:
        ValueError: a parameter is invalid, or the trace has no drift.
    """
    above, seen = counts(trace, quantity=quantity, threshold=threshold, rows=rows)
    layers, steps = above.shape
    out = make_subplots(
        rows=1, cols=2, shared_yaxes=True, column_widths=[0.72, 0.28], horizontal_spacing=0.03,
        subplot_titles=("Layer by step", "Each layer, over all steps"),
    )  # fmt: skip
    hover = "step %{x}, layer %{y}: %{z:.2%} of the evaluated rows"
    first = trace.steps_before
    axes = style.FROM_ONE | {"x0": first + 1}
    cells = _share(above, seen).astype(np.float32)
    out.add_trace(style.log_heat_map(cells, TICKS, hover, axes), 1, 1)
    out.add_trace(style.log_colour_bar("share of the evaluated rows", TICKS), 1, 1)
    numbers = np.arange(1, layers + 1)
    drifted = _share(above.sum(1), seen.sum(1))
    out.add_bar(
        x=100 * drifted, y=numbers, orientation="h", row=1, col=2,
        name="drifted, of the evaluated rows", marker={"color": "#0072b2"},
        customdata=[style.percent(share, 2) for share in drifted.tolist()],
        hovertemplate="layer %{y}: %{customdata}<extra></extra>",
    )  # fmt: skip
    shares = _budget(trace, layers)
    if shares is not None:
        whose = "all rows" if chooses_prompt_rows(trace) else "the rows in the answer"
        out.add_scatter(
            x=100 * shares, y=numbers, row=1, col=2, mode="lines+markers",
            name=f"budget (share of {whose}, between refreshes)",
            line={"color": "#d55e00", "dash": "dash"},
            customdata=[style.percent(share, 2) for share in shares.tolist()],
            hovertemplate="layer %{y}: budget %{customdata}<extra></extra>",
        )  # fmt: skip
    out.update_xaxes(style.rightwards("step", steps, first), row=1, col=1)
    out.update_xaxes({"title": {"text": "% of rows"}, "rangemode": "tozero"}, row=1, col=2)
    out.update_yaxes(style.downwards("layer", layers) | {"title": None})
    out.update_yaxes(title={"text": "layer"}, row=1, col=1)
    whose = "Rows in the answer" if rows == "answer" else "Rows"
    title = f"{whose} with a drift of {QUANTITY_NAMES[quantity]} above {threshold:g}"
    return style.finish(out, trace, title, min(max(260 + 22 * layers, 380), 900))


def counts(
    trace: Trace, *, quantity: str = "v", threshold: float = 0.05, rows: str = "all"
) -> tuple[np.ndarray, np.ndarray]:
    """The numbers of rows above the threshold and of evaluated rows, both int64 [L, S].

    Args and errors are those of `figure`.
    """
    check_choice("rows", rows, ROWS)
    number = isinstance(threshold, int | float | np.number) and not isinstance(threshold, bool)
    if not number or not 0 <= threshold <= 2:
        raise ValueError(f"threshold: {threshold!r} is not a drift; choose a number from 0 to 2")
    check_drift(trace, quantity)
    first = 0
    if rows == "answer":
        first = max(trace.prompt_length - trace.region_shift, 0)
    last = np.searchsorted(decode(np.arange(NOT_EVALUATED)), threshold, "right") - 1
    shape = trace.layers, trace.steps
    above, seen = np.zeros(shape, np.int64), np.zeros(shape, np.int64)
    for layer in range(trace.layers):
        codes = drift_of(trace, quantity, layers=slice(layer, layer + 1))[:, 0, first:]
        known = codes != NOT_EVALUATED
        seen[layer] = np.count_nonzero(known, axis=-1)
        above[layer] = np.count_nonzero(known & (codes > last), axis=-1)
    return above, seen


def _share(above: np.ndarray, seen: np.ndarray) -> np.ndarray:
    return np.where(seen > 0, above / np.maximum(seen, 1), np.nan)


def _budget(trace: Trace, layers: int) -> np.ndarray | None:
    """The method's budget as shares [L]; None if the trace has none."""
    facts = trace.meta.get("facts")
    given: Any = facts.get("budget") if isinstance(facts, Mapping) else None
    if not isinstance(given, list) or len(given) != layers:
        return None
    return np.array(given, float) if all(type(one) in (int, float) for one in given) else None
