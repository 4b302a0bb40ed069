"""Expert changes: the share of computed rows whose experts changed, by layer and step."""

from __future__ import annotations

import numpy as np
import plotly.graph_objects as go
from plotly.subplots import make_subplots

from engine.core.drift_codes import NOT_EVALUATED
from engine.trace.trace import Trace
from inspector.figures import style
from inspector.views import experts


def figure(trace: Trace, *, least: int = 1) -> go.Figure:
    """Share of the rows of which at least `least` experts changed since they were last computed.

    Left, a heat map of L layers (down) by S steps. Cells in which no row was computed a second
    time are blank, as are layers with a dense feed-forward network. Right, the mean number of
    changed experts of a row of each layer, over all steps.

    Args:
        trace: a run of a model with experts, recorded at level `layers` or above.
        least: number of changed experts from which a row counts, 1 to those that a row has.

    Returns:
        A figure whose first trace is the heat map, with `z` float [L, S].

    Raises:
        ValueError: `least` is invalid, or the trace has no changes of experts.
    """
    experts.check(trace)
    active = experts.active_experts(trace)
    if type(least) is not int or not 1 <= least <= active:
        raise ValueError(f"least: {least!r} is not a number of experts; choose 1 to {active}")
    changed, seen, total = counts(trace, least=least)
    layers, steps = seen.shape
    out = make_subplots(
        rows=1, cols=2, shared_yaxes=True, column_widths=[0.72, 0.28], horizontal_spacing=0.03,
        subplot_titles=("Layer by step", "Each layer, over all steps"),
    )  # fmt: skip
    share = np.where(seen > 0, changed / np.maximum(seen, 1), np.nan)
    hover = "step %{x}, layer %{y}: %{z:.2%} of the rows computed again"
    first = trace.steps_before
    axes = style.FROM_ONE | {"x0": first + 1}
    heat = style.linear_heat_map(share, "share of the rows", hover, axes)
    out.add_trace(heat, 1, 1)
    rows = seen.sum(1)
    out.add_bar(
        x=np.where(rows > 0, total.sum(1) / np.maximum(rows, 1), np.nan),
        y=np.arange(1, layers + 1), orientation="h", row=1, col=2, showlegend=False,
        marker={"color": "#0072b2"}, hovertemplate="layer %{y}: %{x:.2f} of "
        f"{active} experts changed<extra></extra>",
    )  # fmt: skip
    out.update_xaxes(style.rightwards("step", steps, first), row=1, col=1)
    out.update_xaxes({"title": {"text": "experts a row"}, "rangemode": "tozero"}, row=1, col=2)
    out.update_yaxes(style.downwards("layer", layers) | {"title": None})
    out.update_yaxes(title={"text": "layer"}, row=1, col=1)
    title = f"Rows of which at least {least} of {active} experts changed"
    return style.finish(out, trace, title, min(max(260 + 22 * layers, 380), 900))


def counts(trace: Trace, *, least: int = 1) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Rows with at least `least` changed experts, rows with known changes, and all changes.

    All int64 [L, S]; the changes are summed over the rows. `least` is that of `figure`.
    """
    shape = trace.layers, trace.steps
    changed, seen, total = (np.zeros(shape, np.int64) for _ in range(3))
    for layer in range(trace.layers):
        numbers = experts.changes_of(trace, layers=slice(layer, layer + 1))[:, 0]
        known = numbers != NOT_EVALUATED
        seen[layer] = known.sum(-1)
        changed[layer] = (known & (numbers >= least)).sum(-1)
        total[layer] = np.where(known, numbers, 0).sum(-1, dtype=np.int64)
    return changed, seen, total
