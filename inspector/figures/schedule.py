"""Refresh schedule: what each step recomputed in each region and layer, and what was planned."""

from __future__ import annotations

import numpy as np
import plotly.graph_objects as go
from plotly.subplots import make_subplots

from engine.core.events import KINDS, SITES
from engine.core.regions import REGIONS
from engine.trace.trace import Trace
from inspector.figures import style
from inspector.figures.checks import QUANTITY_NAMES, check_choice, check_recorded
from inspector.figures.style import Look
from inspector.views.schedule import plans

LOOKS = {
    KINDS.index("full"): Look("rgb(0, 114, 178)", "full", "●", "#ffffff"),
    KINDS.index("partial"): Look("rgb(86, 180, 233)", "partial", "◐"),
    KINDS.index("reuse"): Look("rgb(240, 228, 66)", "reuse", "○"),
    KINDS.index("frozen"): Look("rgb(158, 165, 175)", "frozen", "✱"),
}
NOT_RECORDED = 255


def figure(trace: Trace, *, quantity: str = "mean") -> go.Figure:
    """What each of S steps recomputed, and what the method had planned. It is in no paper.

    Three charts over the steps. Above, the kind of each region (prompt, current block, rest of the
    answer) as planned and as done: `full` if all rows were recomputed in every layer and site,
    `partial` if some, `reuse` if none, `frozen` if none in this and all later steps. The planned
    kinds are blank if the trace has none; orange dots mark where done differs from planned. In the
    middle, L layers (down): the share of all rows recomputed, from 0 to 1. Below, the token-layers
    recomputed up to each step, in percent of those of all positions.

    Args:
        trace: a run recorded at level `steps` or above.
        quantity: what the share in the middle is of: `k`, `v`, `attn` (attention output), `ffn`
            (feed-forward output), or `mean` for the mean of the four.

    Returns:
        A figure whose traces named after the kinds have `z` float32 [6, S], and whose trace
        `share` has `z` float32 [L, S].

    Raises:
        ValueError: the quantity is unknown, or the trace has no plans.
    """
    check_choice("quantity", quantity, ("mean", *SITES))
    check_recorded(trace, "plan", "steps")
    found = plans(trace)
    by_site, running = found["share"], found["running"]
    share = by_site.mean(-1) if quantity == "mean" else by_site[:, :, SITES.index(quantity)]
    steps, layers = share.shape
    first = trace.steps_before
    what = "mean of K, V and both outputs" if quantity == "mean" else QUANTITY_NAMES[quantity]
    titles = (
        "Region by step, planned above and done below",
        f"Share of all rows recomputed, {what}: layer by step",
        "Token-layers recomputed up to each step, as a share of those of all positions",
    )
    out = make_subplots(
        rows=3, cols=1, shared_xaxes=True, row_heights=[0.27, 0.43, 0.3], vertical_spacing=0.07,
        subplot_titles=titles,
    )  # fmt: skip
    _add_kinds(out, found["planned"], found["done"], found["differs"], first)
    hover = "step %{x}, layer %{y}: %{z:.3%} of the rows recomputed"
    axes = style.FROM_ONE | {"x0": first + 1}
    heat = style.linear_heat_map(share.T, "share of rows", hover, axes, len=0.4, y=0.52)
    out.add_trace(heat.update(name="share"), 2, 1)
    out.add_scatter(
        x=np.arange(steps) + first + 1, y=running, row=3, col=1, mode="lines",
        name="recomputed so far",
        line={"color": "#009e73", "width": 2}, showlegend=False,
        customdata=[style.percent(part / 100, 1) for part in running.tolist()],
        hovertemplate="step %{x}: %{customdata} so far<extra></extra>",
    )  # fmt: skip
    out.update_xaxes(style.rightwards("step", steps, first) | {"title": None})
    out.update_xaxes(title={"text": "step"}, row=3, col=1)
    out.update_yaxes(style.downwards("layer", layers), row=2, col=1)
    out.update_yaxes({"title": {"text": "% so far"}, "range": [0, 100]}, row=3, col=1)
    return style.finish(out, trace, f"Refresh schedule, {what}", 760)


def _add_kinds(
    out: go.Figure, planned: np.ndarray, done: np.ndarray, differs: np.ndarray, first: int
) -> None:
    """Add the kinds [S, 3] of both halves and a dot at each [step, region] of `differs`.

    Steps are numbered from `first` + 1.
    """
    above = planned if len(planned) else np.full(done.shape, NOT_RECORDED, np.uint8)
    names = [f"{half}: {region}" for half in ("planned", "done") for region in REGIONS]
    codes = np.concatenate((above, done), 1).T
    for part in style.category_maps(codes, LOOKS, "step %{x}, %{y}", names, first):
        out.add_trace(part, 1, 1)
    if len(differs):
        out.add_scatter(
            x=differs[:, 0] + first + 1, y=[names[3 + region] for region in differs[:, 1]],
            row=1, col=1,
            mode="markers", name="done differs from planned", marker={"color": style.MARK},
            hovertemplate="step %{x}, %{y} differs from planned<extra></extra>",
        )  # fmt: skip
    out.add_hline(y=2.5, line={"color": style.INK, "width": 1.5}, row=1, col=1)
    out.update_yaxes(autorange="reversed", row=1, col=1)
