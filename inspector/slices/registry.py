"""The registry of slices: the parts of each view, and the function that cuts each part."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from engine.trace.trace import Trace
from inspector.slices import maps, tables
from inspector.slices.fields import Fields, SliceError
from inspector.slices.message import Cut, encoded
from inspector.slices.scatter import scatter
from inspector.slices.tables import WhatIf, what_if_step
from inspector.views.why import why_facts

MAX_MESSAGE = 2_000_000
Part = Callable[[Trace, Fields], Cut]
SLICES: dict[str, dict[str, Part]] = {
    "frame": {"facts": tables.frame},
    "token": {"series": tables.token},
    "plan": {"bits": tables.plan_bits, "map": maps.plan_map, "counts": tables.rows_done},
    "drift": {"map": maps.drift_map, "counts": tables.counts},
    "experts": {
        "facts": tables.expert_facts, "counts": tables.expert_counts, "map": maps.expert_map,
        "probed": maps.probed_expert_map,
    },
    "schedule": {"kinds": tables.schedule_kinds, "portion": tables.schedule_portion},
    "queries": {
        "facts": tables.query_facts, "histogram": tables.query_histogram,
        "reuse": tables.query_reuse, "age": maps.age_map,
    },
    "scatter": {"pair": scatter},
    "similarity": {
        "facts": tables.similarity_facts, "map": maps.similarity_map, "row": tables.similarity_row,
    },
    "error": {
        "facts": tables.error_facts, "map": maps.error_map, "mean": tables.error_mean,
        "recall": tables.error_recall, "bound": tables.error_bound,
        "predictions": tables.error_predictions,
    },
    "lens": {
        "facts": tables.lens_facts, "map": maps.lens_map, "ids": tables.lens_ids,
        "layers": tables.lens_layers,
    },
    "candidates": {"map": maps.candidate_map, "list": tables.candidate_list},
    "guider": {
        "facts": tables.guider_facts, "map": maps.verdict_map, "step": tables.guider_step,
        "points": tables.guider_points,
    },
}  # fmt: skip


def cut(
    trace: Trace,
    fields: Fields,
    caches: Sequence[Mapping[str, Any]] = (),
    what_if: WhatIf | None = None,
) -> bytes:
    """The encoded slice that the fields `view`, `part` and those of the part ask for.

    `caches` are those of the catalog, whose reasons the view `why` has; `what_if` is that of the
    engine's session, without which there is no such view. Raises SliceError for a wrong field or a
    slice that is too large, and one with the status 404 if the trace lacks what the slice needs.
    """
    why = {"facts": lambda trace, fields: Cut.of(why_facts(trace, caches))}
    slices: dict[str, Mapping[str, Part]] = SLICES | {"why": why}
    if what_if is not None:
        slices["what_if"] = {"step": partial(what_if_step, apply=what_if)}
    parts = slices[fields.choice("view", tuple(slices))]
    part = fields.choice("part", tuple(parts), next(iter(parts)))
    try:
        found = parts[part](trace, fields)
    except SliceError:
        raise
    except ValueError as error:
        raise SliceError("view", str(error)[:500], 404) from None
    fields.finish()
    size = sum(array.nbytes for array in found.arrays.values())
    message = encoded(found) if size <= MAX_MESSAGE else b""
    if not message or len(message) > MAX_MESSAGE:
        raise _too_large(fields, size)
    return message


def _too_large(fields: Fields, size: int) -> SliceError:
    """The refusal of a slice of `size` bytes, with a remedy that the slice has."""
    field, remedy = "part", "this part has no windows of steps, so ask for another one"
    if fields.reads("height"):
        field, remedy = "height", "ask for fewer rows or columns"
    elif fields.reads("step_to"):
        field, remedy = "step_to", "ask for a window of fewer steps"
        remedy += ", or for one quantity" if fields.reads("quantity") else ""
    said = f"the slice has {size / 1e6:.1f} MB, more than {MAX_MESSAGE // 10**6}; {remedy}"
    return SliceError(field, said, 413)
