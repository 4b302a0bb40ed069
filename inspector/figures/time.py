"""Time per step: milliseconds of each step of one or several timed runs, and their running sum."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np
import plotly.graph_objects as go
from plotly.subplots import make_subplots

from engine.core.events import KINDS
from engine.trace.trace import Trace
from inspector.figures.style import heading
from inspector.page_data.charts import LANES, LOOKS, styled
from inspector.page_data.compare import timed
from inspector.views.time import costs

ONE_RUN = (LANES["b"][0], "solid", "circle")
Look = tuple[str, str, str]


def figure(traces: Mapping[str, Trace] | Trace) -> go.Figure:
    """Milliseconds of each of S steps (forward and decision) and their running sum.

    Compare the Time view of the page, which splits the time into parts. Steps of kind `full` have
    a marker. Runs differ in colour, dash and marker. Backgrounds are transparent, so that the
    chart fits light and dark pages.

    Args:
        traces: one timed run, which is named by its method in the title; or several runs by name,
            in which `a` and `b` are the lanes of a race.

    Returns:
        A figure with two traces for each run, both with `y` float64 [S] in milliseconds.

    Raises:
        ValueError: there is no trace, or layers were recorded in one, so that its times include
            the recording.
    """
    if isinstance(traces, Trace):
        out = _drawn([(traces, "the run", ONE_RUN)])
        title = heading("Time of each step", traces)
        return out.update_layout(title=title, showlegend=False, margin={"t": 100}, height=364)
    if not traces:
        raise ValueError("traces: no trace is given; give one trace, or several by name")
    return _drawn(list(_named(traces)))


def _named(traces: Mapping[str, Trace]) -> Iterator[tuple[Trace, str, Look]]:
    """Each trace with its name in the legend and its look; lanes keep theirs."""
    for place, (name, trace) in enumerate(traces.items()):
        look = LANES.get(name, LOOKS[place % len(LOOKS)])
        yield trace, f"Lane {name.upper()}" if name in LANES else name, look


def _drawn(runs: list[tuple[Trace, str, Look]]) -> go.Figure:
    titles = ("Time of each step (ms)", "Time so far (ms)")
    out = make_subplots(rows=1, cols=2, subplot_titles=titles, horizontal_spacing=0.09)
    for trace, name, (colour, dash, symbol) in runs:
        took = _milliseconds(trace, name)
        kinds = trace.arrays()["kind"]
        sizes = np.where(kinds == KINDS.index("full"), 7, 0).tolist()
        marks = {"color": colour, "symbol": symbol, "size": sizes}
        for column, values in ((1, took), (2, took.cumsum())):
            out.add_scatter(
                x=np.arange(len(took)) + trace.steps_before + 1, y=values.round(3),
                row=1, col=column,
                text=[KINDS[kind] for kind in kinds], name=name, legendgroup=name,
                showlegend=column == 1, mode="lines+markers" if column == 1 else "lines",
                line={"color": colour, "dash": dash, "width": 2}, marker=marks,
                hovertemplate="step %{x}, %{text}: %{y:.1f} ms",
            )  # fmt: skip
    first = min(trace.steps_before for trace, _, _ in runs)
    last = max(trace.steps_before + trace.steps for trace, _, _ in runs)
    return styled(out, "step").update_xaxes(range=[first + 0.5, last + 0.5])


def _milliseconds(trace: Trace, name: str) -> np.ndarray:
    """Forward and decision of each step [S]; ValueError if layers were recorded in the run."""
    if not timed(trace):
        raise ValueError(
            f"traces: layers were recorded in {name}, so its times would include the recording; "
            'run its spec again with record="off"'
        )
    found = costs(trace)
    return found["forward_ms"] + found["decide_ms"]
