"""The axes of the growth suite and its chart."""

from xml.dom import minidom

import pytest

from engine.bench import chart, growth, suite


def test_the_axes_cover_their_ranges():
    ends = {axis: (values[0], values[-1]) for axis, values in growth.AXES.items()}
    assert ends["prompt"] == (64, 2048)
    assert ends["answer"] == (64, 512)
    assert ends["batch"] == (1, 8)
    assert set(growth.SHOWN.values()) <= set(suite.speed_settings())
    assert growth.LAYERS in suite.CPU_SHAPE


def test_a_chart_escapes_names_and_draws_powers_as_a_straight_line():
    line = chart.Line("<b>", [(1, 10.0), (10, 100.0), (100, 1000.0)])
    drawn = minidom.parseString(chart.svg([chart.Panel("x & y", [line])], "ms"))
    (path,) = drawn.getElementsByTagName("polyline")
    places = [tuple(map(float, p.split(","))) for p in path.getAttribute("points").split()]
    (x0, y0), (x1, y1), (x2, y2) = places
    assert x1 - x0 == pytest.approx(x2 - x1, abs=0.2)
    assert y0 - y1 == pytest.approx(y1 - y2, abs=0.2)
    assert y0 > y1
    texts = [node.firstChild.data for node in drawn.getElementsByTagName("text")]
    assert {"<b>", "ms, by x & y", "10", "1000"} <= set(texts)
