"""Looks of the figures: colour scales, heat maps, colour bars, titles and layout."""

from __future__ import annotations

import html
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import plotly.graph_objects as go
from plotly.colors import sample_colorscale, sequential

from engine.core.drift_codes import DRIFTS
from engine.trace.trace import Trace

DRIFT_TICKS = {1e-4: "≤ 0.0001", 1e-3: "0.001", 1e-2: "0.01", 1e-1: "0.1", 1.0: "1"}
DRIFT_TITLE = "1 − cosine"
INK, BLANK, MARK = "#1f2328", "#eceff2", "#e69f00"
CIVIDIS = sequential.Cividis
STOPS = 65
MAX_GLYPHS = 2_000  # cells of a map that has glyphs
SINGLE_DRIFTS = DRIFTS.astype(np.float32)
FROM_ONE = {"x0": 1, "dx": 1, "y0": 1, "dy": 1}


class Look(NamedTuple):
    """How a category is drawn: colour, name in the legend, glyph in its cells and its ink."""

    colour: str
    name: str
    glyph: str
    ink: str = INK


def drifts(codes: np.ndarray) -> np.ndarray:
    """1 - cosine of drift codes of any shape, float32; NaN where no drift was evaluated."""
    return SINGLE_DRIFTS[codes]


def log_scale(floor: float) -> list[tuple[float, str]]:
    """Cividis as a colour scale of values from 0 to 1 whose colours are logarithmic from `floor`.

    Values up to `floor` have the darkest colour.
    """
    places = np.geomspace(floor, 1, STOPS)
    places[-1] = 1
    colours = sample_colorscale(CIVIDIS, np.linspace(0, 1, STOPS).tolist())
    return [(0.0, colours[0]), *zip(places.tolist(), colours, strict=True)]


def log_heat_map(
    values: np.ndarray, ticks: Mapping[float, str], hover: str, axes: Mapping[str, Any] = FROM_ONE
) -> go.Heatmap:
    """A heat map of true values, coloured on the log scale that begins at the smallest tick.

    Plotly's colour bar would be linear in the values, so it is left to `log_colour_bar`.

    Args:
        values: float32 [rows, columns]; a NaN leaves its cell blank.
        ticks: texts of the colour bar by value; the last value is 1.
        hover: hover text, with `%{x}`, `%{y}` and `%{z}` in it.
        axes: coordinates of the cells.
    """
    return go.Heatmap(
        z=values, zmin=0, zmax=1, colorscale=log_scale(min(ticks)), showscale=False,
        hoverongaps=False, hovertemplate=f"{hover}<extra></extra>", **axes,
    )  # fmt: skip


def log_colour_bar(title: str, ticks: Mapping[float, str], **place: Any) -> go.Scatter:
    """A trace without points that carries the logarithmic colour bar of `log_heat_map`.

    Args:
        title: what the colours mean.
        ticks: as of `log_heat_map`.
        place: size and place of the bar, as of plotly's `colorbar`.
    """
    bar = colour_bar(title, np.log10(list(ticks)).tolist(), list(ticks.values()), **place)
    marker = {
        "color": [0], "cmin": np.log10(min(ticks)), "cmax": 0, "colorscale": CIVIDIS,
        "showscale": True, "colorbar": bar,
    }  # fmt: skip
    return go.Scatter(
        x=[None], y=[None], mode="markers", marker=marker, showlegend=False, hoverinfo="skip"
    )


def linear_heat_map(
    values: np.ndarray, title: str, hover: str, axes: Mapping[str, Any] = FROM_ONE, **place: Any
) -> go.Heatmap:
    """A heat map of values from 0 to 1 with a linear colour bar.

    Args:
        values: float32 [rows, columns]; a NaN leaves its cell blank.
        title: what the colours mean.
        hover: hover text, with `%{x}`, `%{y}` and `%{z}` in it.
        axes: coordinates of the cells.
        place: size and place of the colour bar, as of plotly's `colorbar`.
    """
    ticks = [0, 0.25, 0.5, 0.75, 1]
    return go.Heatmap(
        z=values, zmin=0, zmax=1, colorscale=CIVIDIS, hoverongaps=False,
        hovertemplate=f"{hover}<extra></extra>", **axes,
        colorbar=colour_bar(title, ticks, [f"{tick:g}" for tick in ticks], **place),
    )  # fmt: skip


def colour_bar(
    title: str, values: Sequence[float], texts: Sequence[str], **place: Any
) -> dict[str, Any]:
    """A colour bar with its title beside it."""
    return {
        "title": {"text": title, "side": "right"}, "tickvals": values, "ticktext": texts,
        "thickness": 14, "outlinewidth": 0, **place,
    }  # fmt: skip


def percent(share: float, digits: int) -> str:
    """A share of 1 as text; it reads as 0 or 100 % only if it is."""
    value, least = 100 * share, 10.0**-digits
    if 0 < value < least / 2:
        return f"below {least:.{digits}f} %"
    if 100 - least / 2 <= value < 100:
        return f"above {100 - least:.{digits}f} %"
    return f"{value:.{digits}f} %"


def category_maps(
    codes: np.ndarray,
    looks: Mapping[int, Look],
    hover: str,
    rows: Sequence[Any] | np.ndarray,
    first: int = 0,
) -> Iterator[go.Heatmap | go.Scatter]:
    """The cells of each category that occurs, with an entry in the legend.

    A category is a heat map of a single colour, and on a small map its glyphs.

    Args:
        codes: category of each cell [rows, columns]; other codes than those of `looks` are blank.
        looks: how each category is drawn.
        hover: hover text before the name of the category, with `%{x}` and `%{y}` in it.
        rows: coordinates of the rows.
        first: columns are numbered from `first` + 1.
    """
    columns, places = np.arange(codes.shape[1]) + first + 1, np.asarray(rows)
    for code, look in looks.items():
        here = codes == code
        if not here.any():
            continue
        yield go.Heatmap(
            x=columns, y=places.tolist(), z=np.where(here, np.float32(code), np.float32(np.nan)),
            zmin=0, zmax=255, colorscale=[[0, look.colour], [1, look.colour]], showscale=False,
            name=f"{look.glyph} {look.name}", showlegend=True, legendgroup=look.name,
            hoverongaps=False, hovertemplate=f"{hover}: {look.name}<extra></extra>",
        )  # fmt: skip
        if codes.size <= MAX_GLYPHS:
            across, down = np.nonzero(here.T)
            yield go.Scatter(
                x=columns[across], y=places[down].tolist(), mode="text",
                text=look.glyph, textfont={"color": look.ink, "size": 10}, showlegend=False,
                legendgroup=look.name, hoverinfo="skip",
            )  # fmt: skip


def finish(figure: go.Figure, trace: Trace, title: str, height: int) -> go.Figure:
    """Give a figure its title (see `heading`) and its layout."""
    figure.update_xaxes(showgrid=False, zeroline=False, ticks="outside", automargin=True)
    figure.update_yaxes(showgrid=False, zeroline=False, ticks="outside", automargin=True)
    figure.update_annotations(font={"color": INK, "size": 13})
    top = 112 if figure.layout.annotations else 84
    figure.update_layout(
        template=None, height=height, font={"color": INK}, plot_bgcolor=BLANK,
        title=heading(title, trace),
        margin={"l": 70, "r": 30, "t": top, "b": 60}, hovermode="closest",
        legend={"orientation": "h", "x": 0, "yref": "container", "y": 0, "yanchor": "bottom"},
    )  # fmt: skip
    return figure


def heading(title: str, trace: Trace) -> dict[str, Any]:
    """A title, with the names of the run's model, cache and unmasker in a second line.

    The names come from a trace, which may be an imported file, so they are escaped.
    """
    spec = trace.meta["spec"]
    model, cache, unmasker = (
        html.escape(str(spec.get(name, "unknown"))[:80], quote=False)
        for name in ("model", "cache", "unmasker")
    )
    return {
        "text": f"{title}<br><sub>{model}, cache {cache}, unmasker {unmasker}</sub>",
        "x": 0, "xanchor": "left", "y": 1, "yanchor": "top", "pad": {"l": 16, "t": 24},
    }  # fmt: skip


def numbered(count: int) -> dict[str, Any]:
    """Ticks of an axis that numbers `count` steps, layers or positions: whole numbers."""
    return {"dtick": 1} if count <= 20 else {}


def downwards(name: str, count: int, first: int = 0) -> dict[str, Any]:
    """A vertical axis that numbers `count` cells from `first` + 1, the first at the top."""
    ends = [first + count + 0.5, first + 0.5]
    return {"title": {"text": name}, "range": ends, **numbered(count)}


def rightwards(name: str, count: int, first: int = 0) -> dict[str, Any]:
    """A horizontal axis of the name `name` that numbers `count` cells from `first` + 1."""
    ends = [first + 0.5, first + count + 0.5]
    return {"title": {"text": name}, "range": ends, **numbered(count)}
