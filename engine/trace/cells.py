"""Full-size arrays of drift codes, blank where a narrowed run recorded nothing."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from engine.core.drift_codes import NOT_EVALUATED
from engine.core.events import QUANTITIES, SITES

EVERY = slice(None)


def full_cells(
    arrays: Mapping[str, np.ndarray], name: str, steps: slice = EVERY, layers: slice = EVERY
) -> np.ndarray:
    """Codes uint8 of an array of a trace at all its places, NOT_EVALUATED where none was recorded.

    Args:
        arrays: those of the trace.
        name: `drift` [S, L, QUANTITIES, T], `probe_error` or `probe_moved` [E, L, SITES, T], or
            `similarity` [Y, 2, L, G].
        steps: of the first dimension.
        layers: of the dimension L, from 0.

    An array that was recorded in full is returned itself, not as a copy.
    """
    stored, layer_count = arrays[name], _layer_count(arrays)
    rows = np.arange(len(stored))
    places = [rows, np.arange(2), arrays["recorded_layer"], np.arange(stored.shape[-1])]
    shape = [len(stored), 2, layer_count, stored.shape[-1]]
    if name != "similarity":
        quantities, kinds = arrays["recorded_quantity"], QUANTITIES if name == "drift" else SITES
        places[1:3] = arrays["recorded_layer"], quantities[quantities < len(kinds)]
        places[3] = arrays["recorded_position"]
        shape[1:] = [layer_count, len(kinds), len(arrays["canvas"])]
    if name == "drift" and len(stored):
        places[0], shape[0] = arrays["drift_step"], len(arrays["rows"])
    axis = 2 if name == "similarity" else 1
    if list(stored.shape) == shape:
        return stored[steps][(EVERY,) * axis + (layers,)]
    return _filled(stored, places, shape, {0: steps, axis: layers})


def _layer_count(arrays: Mapping[str, np.ndarray]) -> int:
    """Layers of the model: those of the plans, else as far as layers were recorded."""
    known = arrays["recorded_layer"]
    return arrays["plan"].shape[1] or int(known.max(initial=-1)) + 1


def _filled(
    stored: np.ndarray, places: list[np.ndarray], shape: list[int], chosen: Mapping[int, slice]
) -> np.ndarray:
    """The part of an array of `shape` with `stored` at `places`, at the `chosen` slices by axis."""
    for axis, part in chosen.items():
        wanted = np.arange(shape[axis])[part]
        index = np.full(shape[axis], -1)
        index[wanted] = np.arange(len(wanted))
        here = index[places[axis]]
        stored = np.compress(here >= 0, stored, axis)
        places[axis], shape[axis] = here[here >= 0], len(wanted)
    out = np.full(shape, NOT_EVALUATED, np.uint8)
    out[np.ix_(*places)] = stored
    return out
