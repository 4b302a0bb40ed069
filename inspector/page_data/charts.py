"""Charts: the training loss of the embedded models, and the style of the page's charts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import cycle
from typing import Any

import plotly.graph_objects as go
from plotly.subplots import make_subplots

INK = "#76808e"
LANES = {"a": ("#76808e", "solid", "square"), "b": ("#129370", "dot", "circle")}
# Colour, dash and marker of the lines of a chart, those of the lanes first.
LOOKS = (*LANES.values(), ("#0072b2", "dash", "diamond"), ("#d55e00", "dashdot", "cross"))


def loss_figure(models: Sequence[Mapping[str, Any]]) -> go.Figure:
    """The training loss of embedded models over their training tokens.

    Each of `models` has `name` and `curve`, pairs of tokens (millions) and loss.
    """
    figure = make_subplots(subplot_titles=("Training loss by training tokens (millions)",))
    for model, (colour, dash, _) in zip(models, cycle(LOOKS), strict=False):
        tokens, losses = zip(*model["curve"], strict=True)
        figure.add_scatter(
            x=tokens, y=losses, name=model["name"], mode="lines",
            line={"color": colour, "dash": dash, "width": 2},
            hovertemplate="%{x:.1f} million tokens: loss %{y:.2f}",
        )  # fmt: skip
    return styled(figure, "")


def styled(figure: go.Figure, x: str) -> go.Figure:
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
