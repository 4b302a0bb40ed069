"""Full-size arrays of drift codes, blank where a narrowed run recorded nothing."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from engine.core.drift_codes import NOT_EVALUATED
from engine.core.events import QUANTITIES, SITES

EVERY = slice(None)
OF_EXPERTS = ("expert_changes", "probe_expert_changes")
KINDS = {"drift": len(QUANTITIES), **dict.fromkeys(OF_EXPERTS, 1)}  # of others: SITES


def full_cells(
    arrays: Mapping[str, np.ndarray],
    name: str,
    steps: slice = EVERY,
    layers: slice = EVERY,
    quantities: slice = EVERY,
    positions: slice = EVERY,
) -> np.ndarray:
    """Codes uint8 of an array of a trace at all its places, NOT_EVALUATED where none was recorded.

    Args:
        arrays: those of the trace.
        name: `drift` [S, L, QUANTITIES, T], `probe_error` or `probe_moved` [E, L, SITES, T], or
            `similarity` [Y, 2, L, G]; numbers of experts `expert_changes` [S, L, 1, T] or
            `probe_expert_changes` [E, L, 1, T].
        steps: of the first dimension.
        layers: of the dimension L, from 0.
        quantities: of the dimension QUANTITIES, SITES, 2 or 1.
        positions: of the last dimension.

    A part of an array that was recorded in full is a view of it, not a copy. Of any other array
    only the part is copied.
    """
    stored, layer_count = arrays[name], known_layers(arrays)
    if name in OF_EXPERTS:
        stored = stored[:, :, None]
    rows = np.arange(len(stored))
    places = [rows, np.arange(2), arrays["recorded_layer"], np.arange(stored.shape[-1])]
    shape = [len(stored), 2, layer_count, stored.shape[-1]]
    if name != "similarity":
        recorded, kinds = arrays["recorded_quantity"], KINDS.get(name, len(SITES))
        own = np.arange(1) if name in OF_EXPERTS else recorded[recorded < kinds]
        places[1:3] = arrays["recorded_layer"], own
        places[3] = arrays["recorded_position"]
        shape[1:] = [layer_count, kinds, len(arrays["canvas"])]
    if name in ("drift", "expert_changes") and len(stored):
        places[0], shape[0] = arrays["drift_step"], len(arrays["rows"])
    middle = (quantities, layers) if name == "similarity" else (layers, quantities)
    part = (steps, *middle, positions)
    return stored[part] if list(stored.shape) == shape else _filled(stored, places, shape, part)


def known_layers(arrays: Mapping[str, np.ndarray]) -> int:
    """Layers of the model: those of the plans, else as far as layers were recorded."""
    recorded = arrays["recorded_layer"]
    return arrays["plan"].shape[1] or int(recorded.max(initial=-1)) + 1


def _filled(
    stored: np.ndarray, places: list[np.ndarray], shape: list[int], part: tuple[slice, ...]
) -> np.ndarray:
    """The part of an array of `shape` that has `stored` at `places` and is blank elsewhere."""
    sources, targets, sizes = [], [], []
    for size, chosen, own in zip(shape, part, places, strict=True):
        wanted = np.arange(size)[chosen]
        index = np.full(size, -1)
        index[wanted] = np.arange(len(wanted))
        found = index[own]
        sources.append(np.flatnonzero(found >= 0))
        targets.append(found[found >= 0])
        sizes.append(len(wanted))
    out = np.full(sizes, NOT_EVALUATED, np.uint8)
    if all(map(len, sources)):
        out[_place(targets)] = stored[_place(sources)]
    return out


def _place(indices: list[np.ndarray]) -> tuple[slice | np.ndarray, ...]:
    """The index of the cells at rising `indices` of each axis, which is fast for even distances."""
    found = [_even(own) for own in indices]
    if sum(isinstance(one, np.ndarray) for one in found) > 1:
        return np.ix_(*indices)
    return tuple(found)


def _even(index: np.ndarray) -> slice | np.ndarray:
    """A rising index as a slice if its numbers have the same distance."""
    gaps = np.diff(index)
    gap = int(gaps[0]) if len(gaps) else 1
    rising = gap > 0 and (gaps == gap).all()
    return slice(int(index[0]), int(index[-1]) + 1, gap) if rising else index
