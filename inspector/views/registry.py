"""The views that the page may ask for: name to function of a trace."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from engine.trace import Trace
from inspector.views.drift import drift
from inspector.views.frame import frame

View = Callable[[Trace], dict[str, Any]]
VIEWS: dict[str, View] = {"frame": frame, "drift": drift}


def draw(trace: Trace, name: str) -> dict[str, Any]:
    """A view's data; `{"missing": why}` where the trace does not give it."""
    try:
        return VIEWS[name](trace)
    except ValueError as error:
        return {"missing": str(error)[:500]}
