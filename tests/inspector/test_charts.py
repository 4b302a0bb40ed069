"""The end-of-run chart says what the trace says."""

import numpy as np

from engine.core.events import KINDS
from inspector.page_data.charts import time_figure


def test_the_chart_holds_the_clocks_of_both_lanes(traces):
    figure = time_figure(traces)
    assert [t.name for t in figure.data] == ["Lane A", "Lane A", "Lane B", "Lane B"]
    for lane, (each, total) in zip("ab", (figure.data[:2], figure.data[2:]), strict=True):
        arrays = traces[lane].arrays()
        took = arrays["forward_ms"] + arrays["decide_ms"]
        np.testing.assert_allclose(each.y, took, atol=1e-3)
        np.testing.assert_allclose(total.y, took.cumsum(), atol=1e-3)
        assert list(each.text) == [KINDS[kind] for kind in arrays["kind"]]


def test_lanes_differ_by_more_than_colour(traces):
    a, b = time_figure(traces).data[::2]
    assert (a.line.dash, a.marker.symbol) != (b.line.dash, b.marker.symbol)
