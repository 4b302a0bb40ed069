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


def test_findings_compare_the_largest_value_with_the_base():
    times = {"batch": {1: 20.0, 8: 100.0}, "prompt": {64: 3.0, 512: 10.0, 2048: 45.0}}
    rows = [
        {"axis": axis, "value": value, "method": name, "ms": ms * factor}
        for axis, points in times.items()
        for value, ms in points.items()
        for name, factor in zip(growth.SHOWN, (1, 2, 3), strict=True)
    ]
    rows[-1]["ms"] = 60.0
    batch, prompt = growth.findings(rows).splitlines()
    assert batch == (
        "- Batch 8: 8 times the batch of 1, and a forward takes this many times as long: "
        "5.00 (plain), 5.00 (dual), 5.00 (dLLM-Cache)."
    )
    assert prompt.endswith("4.50 (plain), 4.50 (dual), 2.00 (dLLM-Cache).")


def test_an_axis_without_its_base_has_no_finding():
    rows = [{"axis": "batch", "value": 2, "method": name, "ms": 1.0} for name in growth.SHOWN]
    assert growth.findings(rows) == ""
