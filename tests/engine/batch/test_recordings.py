"""Recordings: what others read while runs are added."""

import threading

from engine.batch import aggregates
from engine.batch.recordings import Recordings
from engine.core.files import ASSETS
from engine.trace.trace import Trace


def test_figures_that_are_read_while_a_run_is_added_have_all_of_it_or_nothing(monkeypatch):
    trace = Trace.load(ASSETS / "examples" / "b-recorded.npz")
    recordings, half, go_on, read = Recordings("layers"), threading.Event(), threading.Event(), []
    add = aggregates.Moments.add

    def slow(self, values):
        add(self, values)
        half.set()
        go_on.wait(10)

    monkeypatch.setattr(aggregates.Moments, "add", slow)
    adding = threading.Thread(target=recordings.add, args=(0, "key", trace))
    reading = threading.Thread(target=lambda: read.append(recordings.to_dict(["one"])))
    adding.start()
    half.wait(10)
    reading.start()
    reading.join(0.3)
    go_on.set()
    adding.join()
    reading.join()
    (row,) = read[0]["settings"]
    drifts = sum(sum(counts) for counts in row["drift"]["runs"])
    assert (row["runs"] > 0) == (drifts > 0) == any(row["committed"])
