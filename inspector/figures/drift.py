"""Drift of K, V, the two outputs or the first head's query, of one layer or one step."""

from __future__ import annotations

import numpy as np
import plotly.graph_objects as go

from engine.trace.trace import Trace
from inspector.figures import style
from inspector.figures.checks import QUANTITY_NAMES, check_drift, check_kept, index_of
from inspector.views.drift import drift_of


def figure(
    trace: Trace, *, layer: int | None = None, step: int | None = None, quantity: str = "v"
) -> go.Figure:
    """Drift of each row when it was recomputed, by position: compare figure 2 of FlashDLM.

    With `layer`, a heat map of S steps (down) by T positions, in which orange dots mark the step
    that committed a token. With `step`, a heat map of L layers (down) by T positions. A cell is
    1 - cosine between a row's new and its last computed value, a number without a unit from 0 to
    2, on the log scale of the page. Cells of rows that were not recomputed, that had no earlier
    value, or that were not recorded are blank.

    Args:
        trace: a run recorded at level `layers` or above.
        layer: index of the layer, from 0.
        step: index of the step, from 0.
        quantity: `k`, `v`, `attn` (attention output), `ffn` (feed-forward output) or `q0` (query
            of the first head).

    Returns:
        A figure whose first trace is the heat map, with `z` float32 [S, T] or [L, T].

    Raises:
        ValueError: not exactly one of `layer` and `step` is given, one of the parameters is
            invalid, or the trace has no drift of the quantity, layer or step.
    """
    check_drift(trace, quantity)
    steps, layers, positions = trace.steps, trace.layers, len(trace.arrays()["canvas"])
    before = trace.steps_before
    if (layer is None) == (step is None):
        raise ValueError("layer, step: give exactly one of them, as in layer=0 or step=0")
    if step is None:
        index = index_of("layer", layer, layers)
        check_kept(trace, "layer", index)
        plane = drift_of(trace, quantity, layers=slice(index, index + 1))[:, 0]
        place, rows = f"layer {index + 1}", ("step", steps, before)
    else:
        index = index_of("step", step, steps)
        check_kept(trace, "step", index)
        plane = drift_of(trace, quantity, slice(index, index + 1))[0]
        place, rows = f"step {before + index + 1}", ("layer", layers, 0)
    hover = f"position %{{x}}, {rows[0]} %{{y}}: {style.DRIFT_TITLE} %{{z:.2g}}"
    axes = style.FROM_ONE | {"y0": rows[2] + 1}
    out = go.Figure(style.log_heat_map(style.drifts(plane), style.DRIFT_TICKS, hover, axes))
    out.add_trace(style.log_colour_bar(style.DRIFT_TITLE, style.DRIFT_TICKS))
    if step is None:
        out.add_trace(_committed(trace))
    out.update_xaxes(style.rightwards("position", positions))
    out.update_yaxes(style.downwards(*rows))
    title = f"Drift of {QUANTITY_NAMES[quantity]}, {place}: {rows[0]} by position"
    return style.finish(out, trace, title, 520)


def _committed(trace: Trace) -> go.Scatter:
    """Dots at the step that committed each token."""
    when = trace.step_map()
    places = np.flatnonzero(when >= 0)
    return go.Scatter(
        x=places + 1, y=trace.steps_before + when[places] + 1, mode="markers",
        name="token committed",
        marker={"color": style.MARK, "size": 5, "line": {"color": "#1c1300", "width": 0.5}},
        showlegend=True, hovertemplate="position %{x}: committed in step %{y}<extra></extra>",
    )  # fmt: skip
