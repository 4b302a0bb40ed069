"""Calls of dLLM-Cache under guidance: the release computes the two branches in calls of their own.

A step that computes the unconditional branch makes a call for it after the conditional one. The
engine counts both as one step.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from engine.cache.methods.dllm_cache import DllmCache

ROWS = {  # arrays with a row for each of these calls
    "logit_call": ("logit_pos", "logits"),
    "upd_call": ("upd_layer", "upd_idx", "upd_margin", "upd_stable"),
}


def cfg_interval(settings: Mapping[str, Any]) -> int:
    """Steps between unconditional calls in the settings of a case."""
    interval: int = settings.get("cfg_interval_steps", settings.get("cfg_interval", 1))
    return interval


def numbered_by_step(
    arrays: Mapping[str, np.ndarray], settings: Mapping[str, Any]
) -> dict[str, np.ndarray]:
    """The arrays of a guided run of dLLM-Cache with steps in place of calls.

    What was recorded of unconditional calls is left out.
    """
    policy, found = DllmCache(cfg_interval=cfg_interval(settings)), dict(arrays)
    steps = list[int]()  # the step of each call
    while len(steps) < int(found["nfe"]):
        step = steps[-1] + 1 if steps else 0
        steps += [step] * (2 if policy.guides(step) else 1)
    step_of = np.array(steps)
    conditional = np.flatnonzero(np.diff(step_of, prepend=-1))
    found["nfe"] = np.array(step_of[-1] + 1)
    calls = found["unmask_call"]
    found["unmask_call"] = np.where(calls < 0, -1, step_of[calls])
    for name in ("in_pos_mask", "out_rows"):
        found[name] = found[name][conditional]
    for call, others in ROWS.items():
        if call in found:
            kept = np.isin(found[call], conditional)
            found |= {name: found[name][kept] for name in others}
            found[call] = step_of[found[call][kept]]
    return found
