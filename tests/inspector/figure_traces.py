"""Traces that figures are drawn of, and parts of a figure."""

import json
import re
from functools import cache

import numpy as np

from engine.core.events import QUANTITIES
from engine.trace.trace import Trace
from tests.support.big_trace import narrowed
from tests.support.micro import ROOT

EXAMPLES = ROOT / "assets" / "examples"
V, FFN = QUANTITIES.index("v"), QUANTITIES.index("ffn")


@cache
def example(name):
    return Trace.load(EXAMPLES / f"{name}.npz")


def plain():
    return example("a-recorded")


def dual():
    return example("b-recorded")


def changed(trace, **arrays):
    """A copy of a trace with other arrays."""
    copy = Trace()
    copy.meta = json.loads(json.dumps(trace.meta))
    copy._arrays = dict(trace.arrays()) | arrays
    return copy


def narrow():
    """Layers 3 and 5, every other step and 30 positions of K, V and FFN."""
    return narrowed(dual(), [2, 4], [0, V, FFN], 2, slice(220, 250))


def without_drift():
    arrays = example("a").arrays()
    return changed(dual(), **{name: arrays[name] for name in ("drift", "similarity", "probe_step")})


def named(figure, name):
    """The trace of a figure with this name."""
    return next(trace for trace in figure.data if trace.name == name)


def end_texts(drawn, rows):
    """The hover texts of the shares of one row of `rows`, and of all but one."""
    digits = int(re.search(r"%{z:\.(\d)%}", drawn.hovertemplate)[1])
    return [f"{share:.{digits}%}" for share in (1 / rows, 1 - 1 / rows)]


def shown(figure, looks, code):
    """Whether a cell of a category map is of a category, bool [rows, columns]."""
    look = looks[code]
    return ~np.isnan(named(figure, f"{look.glyph} {look.name}").z)
