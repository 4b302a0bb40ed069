"""A recorded trace, the slices cut from it, and the views' documents to compare them with."""

from functools import cache

import numpy as np

from inspector.slices import registry
from inspector.slices.fields import Fields
from inspector.views.registry import VIEWS
from tests.inspector.unpacked import decoded, unpacked
from tests.support.big_trace import make_big_trace

LAYERS, STEPS, POSITIONS, PROMPT = 3, 40, 117, 30
WHOLE = [  # view, part, fields, name in the slice: name in the view's document and index there
    ("frame", "", {}, {"revealed": ("revealed", ()), "ids": ("ids", ()), "kinds": ("kinds", ())}),
    ("why", "", {}, {"due": ("due", ())}),
    ("schedule", "kinds", {}, {name: (name, ()) for name in ("planned", "done", "differs")}),
    ("schedule", "kinds", {}, {"running": ("running", ())}),
    ("schedule", "portion", {}, {"portion": ("portion", ())}),
    ("queries", "facts", {}, {"edges": ("edges", ())}),
    ("queries", "histogram", {"layer": 2}, {"counts": ("counts", 2)}),
    ("queries", "reuse", {}, {"reuse": ("reuse", ())}),
    ("scatter", "", {"x": "v", "y": "ffn", "layer": 1}, {"counts": ("counts", (1, 1))}),
    ("scatter", "", {"x": "v", "y": "ffn", "layer": 1}, {"stats": ("stats", (1, 1))}),
    ("scatter", "", {"x": "q0", "y": "v"}, {"stats": ("stats", 3), "rows": ("rows", 3)}),
    ("similarity", "facts", {}, {"steps": ("steps", ()), "groups": ("groups", ())}),
    ("error", "facts", {}, {name: (name, ()) for name in ("step", "count", "mean_tv", "flips")}),
    ("error", "mean", {"quantity": "v"}, {"mean": ("mean", (..., 1))}),
    ("error", "recall", {"quantity": "ffn"}, {"recall": ("recall", (..., 3))}),
    ("error", "recall", {"quantity": "ffn"}, {"chance": ("chance", (..., 3))}),
    ("error", "bound", {"layer": 1}, {"proxy": ("proxy", (slice(None), 1))}),
    ("error", "bound", {"layer": 1}, {"true": ("true", (slice(None), 1))}),
    ("guider", "facts", {}, {name: (name, ()) for name in ("drafted", "mean", "survival")}),
    ("guider", "map", {}, {"cells": ("cells", ())}),
]  # fmt: skip


@cache
def whole_trace():
    """The trace that the slices are cut from."""
    return make_big_trace(LAYERS, STEPS, POSITIONS, PROMPT)


def cut(trace, view, part="", **fields):
    """The arrays and facts of a slice."""
    given = {"view": view, **({"part": part} if part else {})}
    given |= {name: str(value) for name, value in fields.items()}
    return decoded(registry.cut(trace, Fields(given)))


def cells(trace, view, **fields):
    """The cells of a map of a slice."""
    return cut(trace, view, "map", **fields)[0]["cells"]


def check_part(trace, view, part, fields, names):
    found, whole = cut(trace, view, part, **fields)[0], VIEWS[view](trace)
    for name, (source, index) in names.items():
        want = unpacked(whole[source])[index]
        assert found[name].dtype == want.dtype
        assert np.array_equal(found[name], want, equal_nan=want.dtype.kind == "f")
