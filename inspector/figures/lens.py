"""Logit lens: the token that each layer would give at a probed step, and its probability."""

from __future__ import annotations

import numpy as np
import plotly.graph_objects as go

from engine.core.events import NOT_COMPUTED, PROBABILITY_SCALE
from engine.trace.trace import Trace
from inspector.figures import style
from inspector.figures.checks import check_choice, check_recorded, index_of
from inspector.views.lens import NEVER, PASSES, check, codes_of, layers_of

TEXTS = {"run": "the run", "exact": "the exact pass"}
OF = {"best": "the best token", "token": "the exact pass's prediction"}
MAX_TEXT = 40


def figure(trace: Trace, *, probe: int, of_pass: str = "run", of: str = "best") -> go.Figure:
    """What each layer of a probed step would predict for the answer: layer by answer token.

    The hidden state after each layer goes through the final norm and the head. Hover texts name the
    token. An orange dot marks the layer from which the best token is that of the last layer. Blank
    cells have no hidden state, because the row did not enter the step, or are of the last layer at
    positions that the step does not predict.

    Args:
        trace: a run recorded at level `probe`.
        probe: index of the probed step, from 0, as in the array `probe_step`.
        of_pass: `run` for the run's own pass, `exact` for the forward without reuse on its canvas.
        of: whose probability the colours show: `best` for the best token of each layer, `token` for
            the one that is best after the last layer of the exact pass.

    Returns:
        A figure whose first trace is the heat map, with `z` float32 [L, n] and the texts of the
        tokens as `text`.

    Raises:
        ValueError: a parameter is invalid, or the run has no logit lens.
    """
    check_choice("of_pass", of_pass, PASSES)
    check_choice("of", of, tuple(OF))
    check_recorded(trace, "probe_step", "probe")
    check(trace)
    arrays = trace.arrays()
    index = index_of("probe", probe, len(arrays["probe_step"]))
    side = PASSES.index(of_pass)
    codes = codes_of(trace, index, of == "token")[side]
    known = codes != NOT_COMPUTED
    values = np.where(known, codes / np.float32(PROBABILITY_SCALE), np.float32(np.nan))
    places = arrays["lens_position"] - trace.prompt_length + 1
    axes = {"x": places, "y0": 1, "dy": 1}
    hover = "answer token %{x}, layer %{y}: %{text} %{z:.3f}"
    heat = style.linear_heat_map(values, f"probability of {OF[of]}", hover, axes)
    heat.text = _texts(trace, arrays["lens_id"][index, side], known)
    out = go.Figure(heat)
    stays = layers_of(trace, index)["stays"][side]
    marked = stays != NEVER
    out.add_trace(go.Scatter(
        x=places[marked], y=stays[marked] + 1, mode="markers", hoverinfo="skip",
        marker={"color": style.MARK, "size": 5}, name="the last layer's token from here on",
        showlegend=True,
    ))  # fmt: skip
    out.update_xaxes(title={"text": "answer token"})
    out.update_yaxes(**style.downwards("layer", len(codes)))
    step = trace.steps_before + int(arrays["probe_step"][index]) + 1
    return style.finish(out, trace, f"Logit lens of {TEXTS[of_pass]}, step {step}", 480)


def _texts(trace: Trace, ids: np.ndarray, known: np.ndarray) -> list[list[str]]:
    """The texts of token ids [L, n], in quotation marks and without markup."""
    found = {i: _quoted(trace.pieces.get(i), i) for i in np.unique(ids).tolist()}
    return [
        [found[i] if here else "" for i, here in zip(row, flags, strict=True)]
        for row, flags in zip(ids.tolist(), known.tolist(), strict=True)
    ]


def _quoted(piece: bytes | None, token: int) -> str:
    """A token's text, of which plotly would read `<` as markup; its id if the text is unknown."""
    if piece is None:
        return f"id {token}"
    text = piece.decode("utf-8", "backslashreplace")[:MAX_TEXT]
    shown = "".join(c if c.isprintable() else f"\\x{ord(c):02x}" for c in text)
    return "“" + shown.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;") + "”"
