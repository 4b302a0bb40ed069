"""Time: duration and FLOPs of each step of a timed run, and the recorded sweep over rho."""

from __future__ import annotations

import json
from typing import Any

import numpy as np

from engine.core.events import PARTS
from engine.core.files import ASSETS
from engine.trace.trace import Trace
from inspector.page_data import compare, foreign
from inspector.page_data.packing import packed
from inspector.views.guider import break_even, drafting_steps

RESULTS = ASSETS / "results" / "results.json"


def time(trace: Trace) -> dict[str, Any]:
    """The arrays of `costs`, packed for the page, and `parts`, the names of the parts.

    Raises ValueError for a run whose layers were recorded and for one of another engine.
    """
    if not compare.timed(trace):
        raise ValueError(
            "Runs whose layers are recorded show no times, because the times would include the "
            "recording. Run the race again to see what each step takes."
        )
    found = {name: packed(array.astype(np.float32)) for name, array in costs(trace).items()}
    return {**found, "parts": list(PARTS)}


def costs(trace: Trace) -> dict[str, np.ndarray]:
    """Milliseconds and GFLOPs of every step.

    Returns these arrays:

    - `forward_ms`, `decide_ms` [S];
    - `gflops` [S, P], where P counts `parts`;
    - `guider_ms` [S, 2]: the guider's share of `decide_ms` and, within it, its prefill;
    - `needed` [S]: tokens per step that drafts tokens which offset the guider's time (see
      `guider.break_even`).

    The last two are empty without a guider. Raises ValueError for a run of another engine, whose
    FLOPs and parts of the times are not known.
    """
    if foreign.facts(trace) is not None:
        raise ValueError(
            "This run was decoded by another engine: its file has no FLOPs and no times of the "
            "parts of a step. Steps and tokens are in the race and in Compare."
        )
    arrays = trace.arrays()
    spent = arrays["guided_ms"]
    other = (arrays["forward_ms"] + arrays["decide_ms"])[: len(spent)] - spent[:, 0]
    return {
        "guider_ms": spent,
        "needed": break_even(spent[:, 0], other * drafting_steps(trace)),
        "forward_ms": arrays["forward_ms"],
        "decide_ms": arrays["decide_ms"],
        "gflops": arrays["flops"] / 1e9,
    }


def rho(trace: Trace) -> dict[str, Any]:
    """The recorded sweep over dLLM-Cache's ratio (see `engine.bench.ratio_sweep`).

    It is the same for every run. Raises ValueError if its file does not exist.
    """
    if not RESULTS.is_file():
        raise ValueError("There is no recorded sweep. Make one with `python -m engine tables`.")
    return dict(json.loads(RESULTS.read_text("utf-8"))["sweep"])
