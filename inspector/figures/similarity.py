"""Similarity: K or V of every recorded step against every other, of a layer and position group."""

from __future__ import annotations

import plotly.graph_objects as go

from engine.trace.trace import Trace
from inspector.figures import style
from inspector.figures.checks import (
    QUANTITY_NAMES,
    check_choice,
    check_kept,
    check_recorded,
    index_of,
)
from inspector.views.frame import frame
from inspector.views.similarity import compared, compared_steps, step_matrix

QUANTITIES = ("k", "v")
SCALES = ("log", "linear")


def figure(
    trace: Trace, *, layer: int, quantity: str = "v", group: str | None = None, scale: str = "log"
) -> go.Figure:
    """Similarity of K or V between all pairs of X steps, averaged over the tokens of a group.

    Compare figure 3 of Fast-dLLM and figure 4 of DARE. Both axes are the numbers of the compared
    steps (of a run of more than 256 steps, every k-th). A dark square on the diagonal of the log
    scale is a range of steps in which the values barely change. The averages are over a sample of
    the group's tokens, vectors wider than 64 are randomly projected, and a reused row counts with
    its cached value.

    Args:
        trace: a run recorded at level `layers` or above that was not stopped.
        layer: index of the layer, from 0.
        quantity: `k` or `v`.
        group: name of the group of positions, one of `groups(trace)`; by default the first one.
        scale: `log` for 1 - cosine on the log scale of the page, `linear` for the cosine, as in
            the papers. Neither has a unit.

    Returns:
        A figure whose first trace is the heat map, with `z` float32 [X, X].

    Raises:
        ValueError: a parameter is invalid, no steps were compared, or the layer was not recorded.
    """
    check_choice("quantity", quantity, QUANTITIES)
    check_choice("scale", scale, SCALES)
    check_recorded(trace, "drift", "layers")
    if not trace.arrays()["similarity"].size:
        raise ValueError(
            "trace: no steps were compared, because the run did not end or did not record K and "
            "V; run it again"
        )
    names, numbers = groups(trace), compared_steps(trace)["steps"] + trace.steps_before + 1
    index = index_of("layer", layer, trace.layers)
    check_kept(trace, "layer", index)
    shown = names[0] if group is None else group
    check_choice("group", shown, names)
    codes = compared(trace, QUANTITIES.index(quantity), index)[:, names.index(shown)]
    far = style.drifts(step_matrix(codes, len(numbers)))
    text, axes = "step %{y} and step %{x}", {"x": numbers, "y": numbers}
    if scale == "linear":
        out = go.Figure(
            style.linear_heat_map(1 - far, "cosine", f"{text}: cosine %{{z:.4f}}", axes)
        )
    else:
        hover = f"{text}: {style.DRIFT_TITLE} %{{z:.2g}}"
        out = go.Figure(style.log_heat_map(far, style.DRIFT_TICKS, hover, axes))
        out.add_trace(style.log_colour_bar(style.DRIFT_TITLE, style.DRIFT_TICKS))
    ticks = style.numbered(int(numbers[-1] - numbers[0]) + 1)
    out.update_xaxes(title={"text": "step"}, constrain="domain", **ticks)
    out.update_yaxes(title={"text": "step"}, autorange="reversed", scaleanchor="x", **ticks)
    out.update_yaxes(constrain="domain")
    title = f"Similarity of {QUANTITY_NAMES[quantity]}, layer {index + 1}, {shown}: step by step"
    return style.finish(out, trace, title, 620).update_layout(width=680)


def groups(trace: Trace) -> list[str]:
    """The names of a trace's groups of positions: `prompt`, `block 1`, …, `block 4 (last)`."""
    sizes = frame(trace)
    start, block = sizes["prompt"] - sizes["shared"], sizes["block"]
    ranges = trace.arrays()["similarity_group"]
    end = int(ranges[:, 1].max(initial=start))  # of the answer; text after it is in no group
    last = -(-(end - start) // block)
    names = []
    for low in ranges[:, 0].tolist():
        place = (low - start) // block + 1
        tail = " (last)" if place == last > 1 else ""
        names.append("prompt" if low < start else f"block {place}{tail}")
    return names
