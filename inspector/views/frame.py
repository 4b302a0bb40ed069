"""Data that all views of a lane share: positions, steps and tokens; and the recorded plans."""

from __future__ import annotations

from typing import Any

import numpy as np

from engine.core.events import QUANTITIES
from engine.trace.trace import Trace
from inspector.page_data.packing import pack_arrays
from inspector.page_data.tokens import block_length, known
from inspector.views.schedule import check

# The views that need more than a recording level, and the array of the trace that each draws.
ONLY_IN_SOME = {
    "similarity": "similarity",
    "experts": "expert_changes",
    "lens": "lens_id",
    "guider": "guided_count",
}


def level_of(trace: Trace) -> str:
    """The recording level of a run: `off`, `steps`, `layers` or `probe`."""
    arrays = trace.arrays()
    if len(arrays["probe_step"]):
        return "probe"
    if len(arrays["drift"]):
        return "layers"
    return "steps" if len(arrays["plan"]) else "off"


def frame(trace: Trace) -> dict[str, Any]:
    """The facts of `frame_facts` with encoded arrays."""
    return pack_arrays(frame_facts(trace))


def plan(trace: Trace) -> dict[str, Any]:
    """`plan` [S, L, 4, T/8] as in the trace: bits of the rows recomputed.

    Raises ValueError if no plans were recorded.
    """
    check(trace)
    return pack_arrays({"plan": trace.arrays()["plan"]})


def frame_facts(trace: Trace) -> dict[str, Any]:
    """Sizes, the step that unmasked each position, final token ids, and kinds of the steps.

    `before` [T] marks answer tokens that were known before the first step. `revealed` [T] is the
    step that committed a position, -1 for none. `shared` positions of the first block hold tokens
    of the prompt. `sight` [S] is the number of rows, from the first, that a step attends to; of an
    autoregressive run it is that of the whole canvas. `shift` is the number of rows by which the
    row whose logits give a token precedes it. `causal`: the run was decoded autoregressively.
    `unmasker` is the name of its rule, empty if it has none. `narrowed`: the recorder left out
    layers, steps or positions. `quantities` names those whose drifts it kept. `lacks` names views
    that the run has no data for.
    """
    arrays, rule = trace.arrays(), trace.meta["spec"].get("unmasker")
    layers, block = trace.meta["model"].get("layers"), block_length(trace)
    return {
        "level": level_of(trace),
        "positions": len(arrays["canvas"]),
        "prompt": trace.prompt_length,
        "block": block,
        "shared": trace.shared(block),
        "layers": arrays["plan"].shape[1] or (layers if type(layers) is int else 0),
        "steps": trace.steps,
        "revealed": trace.step_map(),
        "before": known(trace),
        "ids": trace.canvas_at(trace.steps).astype(np.int32),
        "blocks": arrays["block"],
        "kinds": arrays["kind"],
        "rows": arrays["rows"],
        "sight": trace.rows_in_sight(),
        "shift": trace.logit_shift,
        "narrowed": _narrowed(trace),
        "quantities": [QUANTITIES[i] for i in arrays["recorded_quantity"].tolist()],
        "causal": rule == "autoregressive",
        "unmasker": rule if isinstance(rule, str) else "",
        "lacks": [name for name, array in ONLY_IN_SOME.items() if not arrays[array].size],
    }


def _narrowed(trace: Trace) -> bool:
    """Whether the drifts of some layers, steps or positions were not recorded."""
    arrays = trace.arrays()
    names = "drift_step", "recorded_layer", "recorded_position"
    whole = [trace.steps, arrays["plan"].shape[1], len(arrays["canvas"])]
    return bool(len(arrays["drift"])) and [len(arrays[name]) for name in names] != whole
