"""The trace of a run's events."""

from collections.abc import Iterable

from engine.core.events import Event
from engine.trace.trace import Trace


def trace_of(events: Iterable[Event]) -> Trace:
    """The events of one run, appended to a trace."""
    trace = Trace()
    for event in events:
        trace.append(event)
    return trace
