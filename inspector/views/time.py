"""Time: what each step of a timed run took, and what it computed; and the sweep over rho."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

from engine.core.events import PARTS
from engine.trace.trace import Trace
from inspector.page_data.packing import packed
from inspector.views.guider import break_even

SWEEP = Path(__file__).parents[2] / "assets" / "table" / "rho.json"
RECORDING = ("steps", "layers", "probe")


def time(trace: Trace) -> dict[str, Any]:
    """Milliseconds and GFLOPs of every step; ValueError for a run that was made to be recorded.

    `forward_ms`, `decide_ms` [S]; `gflops` [S, parts] by `parts`; all float32. `guider_ms` [S, 2]
    is the guider's part of `decide_ms` and, of that, its prefill; `needed` [S] the tokens a step
    that make it good by the clock (see guider.break_even); both are empty without a guider.
    """
    if trace.meta["spec"].get("record") in RECORDING:
        raise ValueError(
            "Recorded runs show no times, for the recorder's work would be in them. Run the race "
            "again to see what each step takes."
        )
    arrays = trace.arrays()
    spent = arrays["guided_ms"]
    other = (arrays["forward_ms"] + arrays["decide_ms"])[: len(spent)] - spent[:, 0]
    return {
        "guider_ms": packed(spent.astype(np.float32)),
        "needed": packed(break_even(spent[:, 0], other)),
        "forward_ms": packed(arrays["forward_ms"].astype(np.float32)),
        "decide_ms": packed(arrays["decide_ms"].astype(np.float32)),
        "gflops": packed((arrays["flops"] / 1e9).astype(np.float32)),
        "parts": list(PARTS),
    }


def rho(trace: Trace) -> dict[str, Any]:
    """The recorded sweep of dLLM-Cache's ratio (see engine.bench.ratio_sweep), the same for every run.

    ValueError where this copy of the program holds none.
    """
    if not SWEEP.is_file():
        raise ValueError("No sweep is recorded here; python -m engine sweep makes one.")
    return dict(json.loads(SWEEP.read_text("utf-8")))
