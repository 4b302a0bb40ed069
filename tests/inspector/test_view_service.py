"""A view that cannot be drawn says why: the request, the run or the lane is not there."""

import json

import pytest

from engine.trace.trace import Trace
from inspector.handlers.view_service import ViewService
from inspector.run_store import GONE, NO_RUN, RaceRecord

INVALID = "Invalid request: expected run id, lane and view."


@pytest.fixture
def stopped(handlers, traces):
    """A race that was stopped before lane B started."""
    record = RaceRecord(state="stopped", traces={"a": traces["a"], "b": Trace()})
    handlers.store.put(record)
    return record


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ({"run": "gone"}, GONE),
        ({"lane": "b"}, NO_RUN),
        ({"lane": "c"}, INVALID),
        ({"view": "other"}, INVALID),
    ],
)
def test_a_document_that_is_not_there_says_why(handlers, stopped, asked, said):
    found = {"run": stopped.run_id, "lane": "a", "view": "time"} | asked
    assert json.loads(ViewService(handlers).view([*found.values()])) == {"missing": said}


def test_a_trace_of_a_lane_without_a_run_is_refused_by_name(handlers, stopped):
    views = ViewService(handlers)
    assert views.trace(stopped.run_id, "a").steps
    for lane, said in (("b", "lane: it has no run"), ("c", "lane: choose from a, b")):
        with pytest.raises(ValueError, match=said):
            views.trace(stopped.run_id, lane)
