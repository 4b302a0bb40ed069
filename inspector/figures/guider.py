"""AR guider: the verdict of an autoregressive model on each drafted token, and what it accepted."""

from __future__ import annotations

import numpy as np
import plotly.graph_objects as go
from plotly.subplots import make_subplots

from engine.trace.trace import Trace
from inspector.figures import style
from inspector.figures.style import Look
from inspector.page_data.tokens import generation, known
from inspector.views import verdicts
from inspector.views.guider import acceptance

KNOWN_BEFORE = 254
LOOKS = {
    verdicts.ACCEPTED: Look("rgb(0, 158, 115)", "accepted", "✓"),
    verdicts.MISMATCH: Look("rgb(213, 94, 0)", "first mismatch", "✗"),
    verdicts.AGREED: Look("rgb(160, 216, 199)", "agreed, but after the mismatch", "+"),
    verdicts.REFUSED: Look("rgb(246, 202, 172)", "not agreed, after the mismatch", "−"),
    verdicts.FALLBACK: Look(
        "rgb(0, 114, 178)", "mismatch, committed by the fallback", "↓", "#ffffff"
    ),
    verdicts.STOP: Look("rgb(45, 48, 58)", "end of the text", "■", "#ffffff"),
    verdicts.FILLED: Look("rgb(128, 136, 148)", "filled after the end", "▪"),
    verdicts.UNTOLD: Look("rgb(240, 228, 66)", "drafted, verdict not recorded", "?"),
    verdicts.NOT_DRAFTED: Look("rgb(186, 194, 204)", "not drafted", "·"),
}


def figure(trace: Trace) -> go.Figure:
    """How far an autoregressive guider agreed with each step's draft (FlashDLM).

    Left, S steps (down) by answer token: the guider's verdict on each drafted token. Tokens are
    accepted up to the first mismatch. Tokens that were known before the step are blank, and those
    after the last drafted one are left out. Right, for each step, the number of tokens accepted
    and its mean so far. Without a recording, the verdicts after the first mismatch are unknown.

    Args:
        trace: a run with the unmasker `guided`, at any recording level.

    Returns:
        A figure whose traces named after the verdicts have `z` float32 [S, answer tokens].

    Raises:
        ValueError: the run has no guider, or its verdicts do not fit the answer.
    """
    if not len(trace.arrays()["guided_count"]):
        raise ValueError(
            "trace: the run has no guider, so nothing was accepted or refused; run its spec again "
            'with unmasker="guided"'
        )
    found = acceptance(trace)
    cells = _shown(trace, verdicts.cells(trace))
    steps, shown = cells.shape
    out = make_subplots(
        rows=1, cols=2, shared_yaxes=True, column_widths=[0.75, 0.25], horizontal_spacing=0.03,
        subplot_titles=("Verdict: step by answer token", "Tokens accepted"),
    )  # fmt: skip
    first = trace.steps_before
    numbers = np.arange(steps) + first + 1
    for part in style.category_maps(cells, LOOKS, "answer token %{x}, step %{y}", numbers):
        out.add_trace(part, 1, 1)
    out.add_bar(
        x=found["accepted"], y=numbers, orientation="h", row=1, col=2, showlegend=False,
        marker={"color": LOOKS[verdicts.ACCEPTED].colour}, customdata=found["drafted"],
        hovertemplate="step %{y}: %{x} of %{customdata} drafted tokens accepted<extra></extra>",
    )  # fmt: skip
    out.add_scatter(
        x=found["mean"], y=numbers, row=1, col=2, mode="lines", name="mean accepted so far",
        line={"color": style.INK, "dash": "dash"},
        hovertemplate="step %{y}: %{x:.2f} per draft so far<extra></extra>",
    )  # fmt: skip
    out.update_xaxes(style.rightwards("answer token", shown), row=1, col=1)
    out.update_xaxes(title={"text": "tokens"}, rangemode="tozero", row=1, col=2)
    out.update_yaxes(style.downwards("step", steps, first) | {"title": None})
    out.update_yaxes(title={"text": "step"}, row=1, col=1)
    height = min(max(240 + 22 * steps, 420), 900)
    return style.finish(out, trace, "Agreement of the AR guider with each draft", height)


def _shown(trace: Trace, cells: np.ndarray) -> np.ndarray:
    """The verdicts [S, G] up to the last drafted token, KNOWN_BEFORE where none was needed."""
    tokens, steps = generation(trace), np.arange(trace.steps)[:, None]
    when = trace.step_map()[tokens]
    before = known(trace)[tokens] | ((when >= 0) & (when < steps))
    drafted = np.flatnonzero(~np.isin(cells, (verdicts.NOT_DRAFTED, verdicts.FILLED)).all(0))
    used = int(drafted.max(initial=0)) + 2
    return np.where((cells == verdicts.NOT_DRAFTED) & before, KNOWN_BEFORE, cells)[:, :used]
