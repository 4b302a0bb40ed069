"""The registry of views: the name of each view and its function of a trace.

The page asks for the TIMED ones as documents and for all others in slices (inspector.slices). A
replay file contains the documents of all.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from engine.trace.trace import Trace
from inspector.page_data.lane_card import lane_card
from inspector.views.candidates import candidates
from inspector.views.drift import drift, scatter
from inspector.views.error import error
from inspector.views.experts import experts
from inspector.views.frame import frame, plan
from inspector.views.guider import guider
from inspector.views.lens import lens
from inspector.views.queries import queries
from inspector.views.schedule import schedule
from inspector.views.similarity import similarity
from inspector.views.time import rho, time
from inspector.views.why import why

View = Callable[..., dict[str, Any]]
VIEWS: dict[str, View] = {
    "frame": frame,
    "plan": plan,
    "why": why,
    "time": time,
    "rho": rho,
    "run_card": lane_card,
    "candidates": candidates,
    "drift": drift,
    "experts": experts,
    "schedule": schedule,
    "queries": queries,
    "error": error,
    "lens": lens,
    "similarity": similarity,
    "scatter": scatter,
    "guider": guider,
}
TIMED = frozenset({"time", "rho", "run_card"})  # views of the timed trace, not the recorded one


def draw(trace: Trace, name: str, caches: Sequence[Mapping[str, Any]] = ()) -> dict[str, Any]:
    """A view's data, or `{"missing": reason}` if the trace lacks what the view needs.

    `caches` are those of the catalog; the view `why` takes their reasons.
    """
    try:
        return why(trace, caches) if name == "why" else VIEWS[name](trace)
    except ValueError as error:
        return {"missing": str(error)[:500]}
