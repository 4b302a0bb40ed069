"""Expert changes: which tokens change experts between the steps that compute them."""

from __future__ import annotations

from typing import Any

import numpy as np

from engine.core.drift_codes import NOT_EVALUATED
from engine.trace.cells import EVERY
from engine.trace.trace import Trace
from inspector.page_data.packing import pack_arrays

MAX_SIZE = 1_024  # experts of a layer


def experts(trace: Trace) -> dict[str, Any]:
    """The changes of experts of a run of a model with experts, recorded at level `layers`.

    Returns a document with `active` and `count`, the experts of a row and of a layer; `changes`
    [S, L, T] uint8: of each row computed in a step, how many of its experts are others than those
    with which it was last computed; `probe_step` [E], and `probed` [E, L, T]: how many of the
    experts of an exact forward are others than those behind the feed-forward output in use. 255
    where nothing is known. Raises ValueError if the run has none.
    """
    check(trace)
    found = {"changes": changes_of(trace), "probed": probed_of(trace)}
    return pack_arrays(facts(trace) | found)


def check(trace: Trace) -> None:
    """Raise ValueError, with the remedy, if the run has no changes of experts."""
    if not active_experts(trace):
        raise ValueError("This model has no experts: all its feed-forward layers are dense.")
    if not len(trace.arrays()["expert_changes"]):
        raise ValueError(
            "This run has no recorded experts: press Record to see which tokens change them."
        )


def active_experts(trace: Trace) -> int:
    """The number of experts of a row, as far as changes count them; 0 without experts."""
    return min(_size(trace, "active"), NOT_EVALUATED - 1)


def facts(trace: Trace) -> dict[str, Any]:
    """`active` and `count`, the experts of a row and of a layer, and `probe_step` [E]."""
    probed = trace.arrays()["probe_expert_changes"]
    steps = trace.arrays()["probe_step"] if len(probed) else np.zeros(0, np.int32)
    return {
        "active": active_experts(trace), "count": _size(trace, "count"), "probe_step": steps,
    }  # fmt: skip


def changes_of(trace: Trace, steps: slice = EVERY, layers: slice = EVERY) -> np.ndarray:
    """Numbers of changed experts, uint8 [S, L, T], 255 where a row was not computed twice."""
    return trace.cells("expert_changes", steps, layers)[:, :, 0]


def probed_of(trace: Trace, probes: slice = EVERY, layers: slice = EVERY) -> np.ndarray:
    """Numbers of experts that the exact router would change, uint8 [E, L, T], 255 if not known."""
    return trace.cells("probe_expert_changes", probes, layers)[:, :, 0]


def rows_by_changes(changes: np.ndarray, active: int, window: slice) -> np.ndarray:
    """Numbers of the rows of a `window` by changed experts, uint16 [n, L, active + 1]."""
    size = active + 1
    found = np.zeros((*changes.shape[:2], size), np.uint16)
    for index in np.ndindex(*changes.shape[:2]):
        found[index] = np.bincount(changes[index][window], minlength=NOT_EVALUATED + 1)[:size]
    return found


def _size(trace: Trace, name: str) -> int:
    """A size of the model's experts in the meta of a trace, which may come from anywhere."""
    given = trace.meta["model"].get("experts")
    size = given.get(name) if isinstance(given, dict) else None
    return size if type(size) is int and 0 <= size <= MAX_SIZE else 0
