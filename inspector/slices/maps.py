"""Slices that are heat maps: a window of cells, reduced to the rows and columns of a screen."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from engine.core.drift_codes import NOT_EVALUATED
from engine.core.events import NOT_COMPUTED, PROBABILITY_SCALE, QUANTITIES, SITES
from engine.trace.trace import Trace
from inspector.slices import reduction
from inspector.slices.fields import Fields, SliceError
from inspector.slices.message import Cut
from inspector.views import experts, lens, verdicts
from inspector.views.candidates import NO_CANDIDATE, best_probabilities, check
from inspector.views.drift import check as check_drift
from inspector.views.drift import drift_of
from inspector.views.error import check as check_probed
from inspector.views.error import errors_of
from inspector.views.guider import check_guided
from inspector.views.queries import NEVER, ages
from inspector.views.schedule import check as check_plan
from inspector.views.similarity import check as check_compared
from inspector.views.similarity import compared, compared_steps, step_matrix

Fold = Callable[[np.ndarray, tuple[int, int]], np.ndarray]
FOLDS: dict[str, Fold] = {
    "maximum": reduction.by_maximum, "minimum": reduction.by_minimum, "mean": reduction.by_mean,
    "share": reduction.by_share,
}  # fmt: skip
AXES = {"steps": "step", "probes": "probe", "layers": "layer", "positions": "position"}


def drift_map(trace: Trace, fields: Fields) -> Cut:
    """Drift codes of a quantity: of a `layer`, steps by positions; of a `step`, layers by these."""
    quantity = fields.choice("quantity", QUANTITIES)
    check_drift(trace)
    rows, *part = _part(fields, "steps", "step", trace.steps, trace.layers)
    plane = _plane(drift_of(trace, quantity, *part))
    return _map(fields, plane, (rows, "positions"), "maximum", {"no_data": NOT_EVALUATED})


def expert_map(trace: Trace, fields: Fields) -> Cut:
    """Changed experts: of a `layer`, steps by positions; of a `step`, layers by these."""
    experts.check(trace)
    rows, *part = _part(fields, "steps", "step", trace.steps, trace.layers)
    plane = _plane(experts.changes_of(trace, *part))
    return _map(fields, plane, (rows, "positions"), "maximum", {"no_data": NOT_EVALUATED})


def probed_expert_map(trace: Trace, fields: Fields) -> Cut:
    """Experts that the exact router would change, of a `probe`: layers by positions."""
    experts.check(trace)
    probe = fields.whole("probe", 0, len(trace.arrays()["probe_expert_changes"]))
    plane = experts.probed_of(trace, slice(probe, probe + 1))[0]
    return _map(fields, plane, ("layers", "positions"), "maximum", {"no_data": NOT_EVALUATED})


def error_map(trace: Trace, fields: Fields) -> Cut:
    """Error codes of a site: of a `layer`, probes by positions; of a `probe`, layers by these."""
    site = SITES.index(fields.choice("quantity", SITES))
    check_probed(trace)
    probes = len(trace.arrays()["probe_step"])
    rows, *part = _part(fields, "probes", "probe", probes, trace.layers)
    plane = _plane(errors_of(trace, site, *part))
    return _map(fields, plane, (rows, "positions"), "maximum", {"no_data": NOT_EVALUATED})


def plan_map(trace: Trace, fields: Fields) -> Cut:
    """Share of rows recomputed at a site: of a `layer` or of a `step`, as codes 0 to 254."""
    check_plan(trace)
    site = SITES.index(fields.choice("quantity", SITES))
    rows, *part = _part(fields, "steps", "step", trace.steps, trace.layers)
    bits = _plane(trace.arrays()["plan"][:, :, site][tuple(part)])
    length = len(trace.arrays()["canvas"])
    high, wide = fields.window(AXES[rows], len(bits)), fields.window("position", length)
    flags = np.unpackbits(bits[high], axis=-1, count=length)[:, wide].view(bool)
    facts = {"scale": reduction.SHARE_SCALE}
    return _reduced(fields, flags, ((rows, high), ("positions", wide)), "share", facts)


def age_map(trace: Trace, fields: Fields) -> Cut:
    """Steps since a site was recomputed, in a `layer`: steps by positions."""
    check_plan(trace)
    plan = trace.arrays()["plan"]
    site = SITES.index(fields.choice("quantity", SITES))
    layer = fields.whole("layer", 0, plan.shape[1])
    fresh = trace.recompute_map((slice(None), layer, site))
    return _map(fields, ages(fresh), ("steps", "positions"), "maximum", {"no_data": NEVER})


def similarity_map(trace: Trace, fields: Fields) -> Cut:
    """Codes of 1 - cosine of `quantity` k or v, in a `layer` and a `group`: step by step."""
    check_compared(trace)
    found = compared_steps(trace)
    kind = SITES.index(fields.choice("quantity", SITES[:2]))
    layer = fields.whole("layer", 0, trace.layers)
    group = fields.whole("group", 0, len(found["groups"]))
    matrix = step_matrix(compared(trace, kind, layer)[:, group], len(found["steps"]))
    return _map(fields, matrix, ("steps", "others"), "mean", {"no_data": NOT_EVALUATED})


def candidate_map(trace: Trace, fields: Fields) -> Cut:
    """Codes of the best probability of each candidate: steps by positions."""
    check(trace)
    high = fields.window("step", trace.steps)
    wide = fields.window("position", len(trace.arrays()["canvas"]))
    codes = best_probabilities(trace, high, wide)
    facts = {"no_data": NO_CANDIDATE, "scale": PROBABILITY_SCALE}
    return _reduced(fields, codes, (("steps", high), ("positions", wide)), "maximum", facts)


def lens_map(trace: Trace, fields: Fields) -> Cut:
    """Codes of the logit lens of a `probe` and a `pass`, layers by positions.

    They are the probabilities `of` the `best` token, or of the exact pass's last best `token`.
    """
    lens.check(trace)
    probe = fields.whole("probe", 0, len(trace.arrays()["lens_id"]))
    of_pass = lens.PASSES.index(fields.choice("pass", lens.PASSES))
    token = fields.choice("of", ("best", "token"), "best") == "token"
    plane = lens.cells(trace, probe, of_pass, token)
    facts = {"no_data": NOT_COMPUTED, "scale": PROBABILITY_SCALE}
    return _map(fields, plane, ("layers", "positions"), "maximum", facts)


def verdict_map(trace: Trace, fields: Fields) -> Cut:
    """The guider's verdicts: steps by answer tokens, reduced to the first of `verdicts.NAMES`."""
    check_guided(trace)
    facts = {"no_data": verdicts.NOT_DRAFTED}
    return _map(fields, verdicts.cells(trace), ("steps", "tokens"), "minimum", facts)


def _part(
    fields: Fields, rows: str, name: str, count: int, layers: int
) -> tuple[str, slice, slice]:
    """The rows' axis and the part of an array [count, layers, columns] at a `layer` or a `name`."""
    if fields.has("layer") == fields.has(name):
        raise SliceError("layer", f"give either layer or {name}")
    if fields.has("layer"):
        layer = fields.whole("layer", 0, layers)
        return rows, slice(0, count), slice(layer, layer + 1)
    row = fields.whole(name, 0, count)
    return "layers", slice(row, row + 1), slice(0, layers)


def _plane(part: np.ndarray) -> np.ndarray:
    """An array [rows, 1, columns] or [1, rows, columns] without the axis of one."""
    return part.reshape(-1, part.shape[-1])


def _map(
    fields: Fields, plane: np.ndarray, axes: tuple[str, str], by: str, facts: dict[str, int]
) -> Cut:
    """The window of a plane [rows, columns] that the fields ask for, reduced."""
    windows = tuple(
        fields.window(AXES.get(axis, axis[:-1]), size)
        for axis, size in zip(axes, plane.shape, strict=True)
    )
    named = ((axes[0], windows[0]), (axes[1], windows[1]))
    return _reduced(fields, plane[windows], named, by, facts)


def _reduced(
    fields: Fields,
    cells: np.ndarray,
    axes: tuple[tuple[str, slice], tuple[str, slice]],
    by: str,
    facts: dict[str, int],
) -> Cut:
    """The array `cells` with at most `height` rows and `width` columns, and what was done."""
    wanted = reduction.factors(cells.shape, fields.sides(), cells.itemsize)
    named = [_axis(*axis, factor) for axis, factor in zip(axes, wanted, strict=True)]
    about = {"rows": named[0], "columns": named[1], "by": by if max(wanted) > 1 else "none"}
    return Cut({"cells": FOLDS[by](cells, wanted)}, {**facts, **about})


def _axis(name: str, window: slice, factor: int) -> dict[str, str | int]:
    return {"name": name, "from": window.start, "to": window.stop, "factor": factor}
