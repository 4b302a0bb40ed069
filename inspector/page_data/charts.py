"""Charts: the times of a race's steps, and the training loss of the embedded models."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import cycle
from typing import Any

import numpy as np
import plotly.graph_objects as go
from plotly.subplots import make_subplots

from engine.core.events import KINDS
from engine.trace.trace import Trace

INK = "#76808e"
LANES = {"a": ("#76808e", "solid", "square"), "b": ("#129370", "dot", "circle")}


def time_figure(traces: Mapping[str, Trace]) -> go.Figure:
    """Milliseconds of each step (forward and decision) and their running sum.

    Steps of kind `full` have a marker. Lanes differ in colour, dash and marker. Backgrounds are
    transparent, so that the chart fits light and dark pages.
    """
    titles = ("Time of each step (ms)", "Time so far (ms)")
    figure = make_subplots(rows=1, cols=2, subplot_titles=titles, horizontal_spacing=0.09)
    for lane, trace in traces.items():
        arrays, (colour, dash, symbol) = trace.arrays(), LANES[lane]
        took = arrays["forward_ms"] + arrays["decide_ms"]
        full = arrays["kind"] == KINDS.index("full")
        line = {"color": colour, "dash": dash, "width": 2}
        kinds = [KINDS[kind] for kind in arrays["kind"]]
        marks = {"color": colour, "symbol": symbol, "size": np.where(full, 7, 0).tolist()}
        for column, values in ((1, took), (2, took.cumsum())):
            figure.add_scatter(
                x=np.arange(1, len(took) + 1), y=values.round(3), text=kinds, row=1, col=column,
                name=f"Lane {lane.upper()}", legendgroup=lane, showlegend=column == 1,
                mode="lines+markers" if column == 1 else "lines", line=line, marker=marks,
                hovertemplate="step %{x}, %{text}: %{y:.1f} ms",
            )  # fmt: skip
    return _styled(figure, "step")


def loss_figure(models: Sequence[Mapping[str, Any]]) -> go.Figure:
    """The training loss of embedded models over their training tokens.

    Each of `models` has `name` and `curve`, pairs of tokens (millions) and loss.
    """
    figure = make_subplots(subplot_titles=("Training loss by training tokens (millions)",))
    for model, (colour, dash, _) in zip(models, cycle(LANES.values()), strict=False):
        tokens, losses = zip(*model["curve"], strict=True)
        figure.add_scatter(
            x=tokens, y=losses, name=model["name"], mode="lines",
            line={"color": colour, "dash": dash, "width": 2},
            hovertemplate="%{x:.1f} million tokens: loss %{y:.2f}",
        )  # fmt: skip
    return _styled(figure, "")


def _styled(figure: go.Figure, x: str) -> go.Figure:
    """A figure with a transparent background and inks that are legible on light and dark pages."""
    figure.update_xaxes(title_text=x, gridcolor="rgba(118,128,142,0.25)", zeroline=False)
    figure.update_yaxes(gridcolor="rgba(118,128,142,0.25)", rangemode="tozero", zeroline=False)
    figure.update_annotations(font={"color": INK, "size": 13})
    figure.update_layout(
        template=None, height=300, margin={"l": 50, "r": 16, "t": 36, "b": 44},
        paper_bgcolor="rgba(0,0,0,0)", plot_bgcolor="rgba(0,0,0,0)", font={"color": INK},
        legend={"orientation": "h", "y": -0.22}, hovermode="closest",
    )  # fmt: skip
    return figure
