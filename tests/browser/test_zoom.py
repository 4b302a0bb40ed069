"""Zoom and colours of heat maps, the names of their files, and charts that stay in their box."""

import base64
import io
import re
from xml.etree import ElementTree

import numpy as np
import pytest
from PIL import Image

from engine.trace.trace import Trace
from tests.browser.test_inspect import LAYER, V, colour_of
from tests.support.browser import ROOT
from tests.support.looking import cell_colour, drawn, show, show_at

pytest_plugins = ["tests.support.chromium"]
pytestmark = pytest.mark.browser
MAP = "drift-steps"
CANVAS = f"#ds-race [data-figure={MAP}] canvas"
BOX = """figure => {
  const node = document.querySelector(`#ds-race [data-figure=${figure}] [data-box]`);
  const { left, top } = node.getBoundingClientRect();
  const [l, t, r, b] = node.dataset.box.split(',').map(Number);
  return [left + l, top + t, left + r, top + b];
}"""
CHANGES = """figure => {
  const found = window.seen = { front: 0, cursor: 0 };
  const [front, cursor] = document.querySelectorAll(`[data-figure=${figure}] svg > g`);
  const watch = (node, name) => new MutationObserver(() => { found[name]++; })
    .observe(node, { childList: true, subtree: true, attributes: true });
  watch(front, 'front');
  watch(cursor, 'cursor');
}"""
LISTEN = """() => {
  window.heard = [];
  const live = document.querySelectorAll(
    '#ds-race [aria-live], #ds-race [role=status], #ds-race [role=alert]');
  for (const node of live) {
    new MutationObserver(() => {
      if (node.getAttribute('aria-live') !== 'off') window.heard.push(node.textContent);
    }).observe(node, { childList: true, subtree: true, characterData: true });
  }
}"""
TOUCH = """([selector, points]) => {
  const node = document.querySelector(selector);
  const touches = points.map(([clientX, clientY], identifier) =>
    new Touch({ identifier, target: node, clientX, clientY }));
  const kind = points.length < 2 ? 'touchend' : window.touched ? 'touchmove' : 'touchstart';
  window.touched = points.length > 1;
  const event = new TouchEvent(kind, { touches, bubbles: true, cancelable: true });
  node.dispatchEvent(event);
  return event.defaultPrevented;
}"""


@pytest.fixture
def race(example):
    """The drift of lane B, with the cursor at a place in the middle; it is not left zoomed."""
    show_at(example, "drift", "b", 4, 10)
    example.page.locator(CANVAS).scroll_into_view_if_needed()
    frame(example)
    yield example
    tool(example, "zoom-reset").evaluate("key => key.click()")


def frame(race):
    """Wait until what was asked for has its data and is drawn."""
    drawn(race)
    race.page.evaluate(
        "new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))"
    )


def cells(race):
    """The number of positions and steps that are shown."""
    frame(race)
    return [int(n) for n in race.page.locator(CANVAS).get_attribute("data-cells").split(",")]


def part(race):
    """First and last position and step that are shown, counted from 1; None for all."""
    frame(race)
    words = tool(race, "zoom-reset").get_attribute("title")
    found = re.match(r"Shown: position (\d+) to (\d+), step (\d+) to (\d+)\.", words)
    return [int(n) for n in found.groups()] if found else None


def tool(race, name, figure=MAP):
    return race.page.locator(f"#ds-race [data-figure={figure}] [data-tool={name}]")


def place(race, x, y, figure=MAP):
    """A place in the box of a figure, as shares of its width and height."""
    left, top, right, bottom = race.page.evaluate(BOX, figure)
    return left + x * (right - left), top + y * (bottom - top)


def said(race):
    return race.text(f"[data-figure={MAP}] .ds-words")


def test_the_wheel_zooms_with_ctrl_and_scrolls_without(race):
    page, whole = race.page, cells(race)
    page.mouse.move(*place(race, 0.496, 0.47))
    before = page.evaluate("scrollY")
    page.mouse.wheel(0, 100)
    page.wait_for_function("before => scrollY > before", arg=before)
    assert cells(race) == whole
    page.mouse.move(*place(race, 0.496, 0.47))
    under = said(race)
    page.keyboard.down("Control")
    page.mouse.wheel(0, -100)
    page.mouse.wheel(0, -100)
    wide, high = cells(race)
    assert wide == pytest.approx(whole[0] / 2, abs=1)
    assert high < whole[1]
    page.keyboard.up("Control")
    page.mouse.move(*place(race, 0.497, 0.471))
    frame(race)
    assert said(race) == under, "the cell under the pointer stays in place"
    tool(race, "zoom-reset").click()
    assert cells(race) == whole
    assert tool(race, "zoom-reset").is_hidden()
    assert page.evaluate("document.activeElement.dataset.tool") == "zoom-in"


def test_a_drag_shows_its_rectangle_and_with_shift_moves(race):
    page, (wide, high) = race.page, cells(race)
    page.mouse.move(*place(race, 0.25, 0.25))
    page.mouse.down()
    page.mouse.move(*place(race, 0.4, 0.4))
    page.mouse.move(*place(race, 0.75, 0.5))
    area = page.locator(f"#ds-race [data-figure={MAP}] .ds-front > rect")
    assert area.is_visible()
    page.mouse.up()
    low, high_x, first, last = part(race)
    assert abs(low - wide * 0.25) <= 2
    assert abs(high_x - wide * 0.75) <= 2
    assert abs(first - high * 0.25) <= 2
    assert abs(last - high * 0.5) <= 2
    assert area.is_hidden()
    page.mouse.move(5, 5)
    frame(race)
    assert race.text("[data-inspect-where]").startswith("No token"), "a drag chooses no cell"
    page.keyboard.down("Shift")
    page.mouse.move(*place(race, 0.5, 0.5))
    page.mouse.down()
    page.mouse.move(*place(race, 0.6, 0.5))
    page.mouse.up()
    page.keyboard.up("Shift")
    moved = part(race)
    assert moved[0] < low
    assert moved[1] - moved[0] == high_x - low
    assert moved[2:] == [first, last]
    page.mouse.click(*place(race, 0.001, 0.001))
    spot = race.page.locator("#ds-race [data-inspect]")
    assert spot.get_attribute("data-position") == str(moved[0] - 1)
    assert spot.get_attribute("data-step") == str(moved[2] - 1)
    page.keyboard.press("Escape")


def test_keys_zoom_around_the_cursor_and_reading_moves_the_part(race):
    page, whole = race.page, cells(race)
    page.locator(CANVAS).focus()
    page.keyboard.press("Home")
    for _ in range(3):
        page.keyboard.press("+")
    low, high, first, last = part(race)
    assert low == 1
    assert first <= 11 <= last
    assert said(race) == f"Shown: position {low} to {high}, step {first} to {last}"
    page.keyboard.press("End")
    assert part(race)[1] == whole[0]
    for _ in range(8):
        page.keyboard.press("Shift+ArrowUp")
    assert part(race)[2] == 1
    page.keyboard.press("-")
    assert cells(race)[0] > high - low + 1
    page.keyboard.press("0")
    assert cells(race) == whole
    page.keyboard.press("Escape")


def test_two_fingers_zoom(race):
    page, whole = race.page, cells(race)

    def fingers(*xs):
        points = [place(race, x, 0.5) for x in xs]
        return page.evaluate(TOUCH, [CANVAS, points])

    assert fingers(0.4, 0.6)
    assert fingers(0.3, 0.7)
    fingers()
    assert cells(race)[0] == pytest.approx(whole[0] / 2, abs=1)
    assert not fingers(0.5), "one finger scrolls the page"


def test_zoomed_cells_have_the_colours_of_their_numbers(race):
    page = race.page
    golden = Trace.load(ROOT / "assets" / "examples" / "b-recorded.npz")
    codes, unmasked = golden.arrays()["drift"][:, LAYER, V], golden.step_map()
    page.locator(CANVAS).focus()
    page.keyboard.press("Home")
    for _ in range(5):
        page.keyboard.press("+")
    low, high, first, last = part(race)
    page.keyboard.press("Escape")
    frame(race)
    shown = [
        (int(codes[step, x]), x, step)
        for step in range(first - 1, last)
        for x in range(low, high)
        if codes[step, x] != 255 and unmasked[x] < 0 and step != 10
    ]
    for code, x, step in (min(shown), sorted(shown)[len(shown) // 2], max(shown)):
        got = cell_colour(race, MAP, x - low + 1, step - first + 1)
        want = colour_of(code)
        assert all(abs(a - b) <= 2 for a, b in zip(got, want, strict=True)), (x, step, got, want)


def test_the_range_of_colours_can_be_set_and_reset(race):
    page = race.page
    scale = f"[data-figure={MAP}] .ds-legend-scale svg"
    before = page.locator(f"#ds-race {scale}").get_attribute("aria-label")
    key = tool(race, "colours")
    key.click()
    assert key.get_attribute("aria-expanded") == "true"
    low = page.locator(f"#ds-race [data-figure={MAP}] [data-range=from]")
    high = page.locator(f"#ds-race [data-figure={MAP}] [data-range=to]")
    kind = page.locator(f"#ds-race [data-figure={MAP}] [data-range=kind]")
    assert [low.input_value(), high.input_value(), kind.input_value()] == ["0.0001", "1", "log"]
    high.fill("0.00001")
    high.press("Enter")
    fault = page.locator(f"#ds-race [data-figure={MAP}] .ds-range-fault")
    assert "below the second" in fault.inner_text()
    assert high.get_attribute("aria-invalid") == "true"
    high.fill("0.01")
    high.press("Enter")
    frame(race)
    assert fault.inner_text() == ""
    legend = page.locator(f"#ds-race {scale}")
    assert legend.get_attribute("aria-label") == "Colour scale: ≤ 0.0001, 0.001, ≥ 0.01"
    kind.select_option("linear")
    frame(race)
    assert "0.004" in legend.get_attribute("aria-label")
    assert kind.is_visible(), "the reader can go back to the logarithmic scale"
    page.locator("#ds-race [data-inspect-layer]").fill("5")
    frame(race)
    assert "≥ 0.01" in legend.get_attribute("aria-label"), "another layer keeps the range"
    tool(race, "colours-reset").click()
    frame(race)
    assert low.evaluate("node => node === document.activeElement"), "the key took the focus away"
    assert legend.get_attribute("aria-label") == before
    assert [low.input_value(), high.input_value(), kind.input_value()] == ["0.0001", "1", "log"]
    assert tool(race, "colours-reset").is_hidden()
    key.click()
    assert low.is_hidden()


def test_files_are_named_by_what_they_show_and_hold_that_part(race):
    page = race.page
    page.locator(CANVAS).focus()
    page.keyboard.press("Home")
    page.keyboard.press("+")
    low, high, first, last = part(race)
    with page.expect_download() as taken:
        page.locator(f"#ds-race [data-figure={MAP}] [data-save=csv]").click()
    name = taken.value.suggested_filename
    assert re.fullmatch(r"driftscope-[\w-]+-lane-b-layer-5-v-drift-steps\.csv", name), name
    rows = taken.value.path().read_text().splitlines()
    assert len(rows) == 1 + (high - low + 1) * (last - first + 1)
    assert rows[1].startswith(f"{low},{first},")
    assert rows[-1].startswith(f"{high},{last},")
    with page.expect_download() as taken:
        page.locator(f"#ds-race [data-figure={MAP}] [data-save=svg]").click()
    assert f">{low}<" in taken.value.path().read_text()
    page.keyboard.press("Escape")


def test_a_figure_as_svg_has_the_hatch_of_cells_without_data(race):
    with race.page.expect_download() as taken:
        race.page.locator(f"#ds-race [data-figure={MAP}] [data-save=svg]").click()
    svg = "{http://www.w3.org/2000/svg}"
    root = ElementTree.parse(taken.value.path()).getroot()
    (pattern,) = root.iter(f"{svg}pattern")
    assert next(pattern.iter(f"{svg}path")).get("stroke")
    (image,) = root.iter(f"{svg}image")
    names = ("x", "y", "width", "height")
    place = [float(image.get(name)) for name in names]
    hatched = [one for one in root.iter() if one.get("fill") == f"url(#{pattern.get('id')})"]
    assert place in [[float(one.get(name) or 0) for name in names] for one in hatched]
    pixels = Image.open(io.BytesIO(base64.b64decode(image.get("href").partition(",")[2])))
    alpha = np.asarray(pixels.convert("RGBA"))[..., 3]
    assert 0 < (alpha == 0).mean() < 1, "the hatch is seen through cells without data alone"


def test_the_mouse_makes_no_live_region_speak(race):
    page = race.page
    page.locator("#ds-race [data-figure=drift-layers] canvas").focus()
    page.keyboard.press("End")  # the pointer changes what was read here
    page.evaluate("document.activeElement.blur()")
    page.evaluate(LISTEN)
    for figure in (MAP, "drift-layers"):
        for share in (0.2, 0.5, 0.8):
            page.mouse.move(*place(race, share, share, figure))
            frame(race)
    assert page.evaluate("window.heard") == []
    page.locator(CANVAS).focus()
    page.keyboard.press("ArrowRight")
    page.wait_for_function("window.heard.length > 0")


def test_the_pointer_redraws_only_the_cursor_of_a_map_and_a_chart(race):
    page = race.page
    for view, figure in (("drift", MAP), ("counts", "counts-steps"), ("counts", "counts")):
        show(race, view)
        page.locator(f"#ds-race [data-figure={figure}]").scroll_into_view_if_needed()
        frame(race)
        page.evaluate(CHANGES, figure)
        for i in range(8):
            page.mouse.move(*place(race, 0.1 + i / 10, 0.5, figure))
            frame(race)
        found = page.evaluate("window.seen")
        assert found["front"] == 0, (figure, found)
        assert found["cursor"] > 4, (figure, found)
        page.mouse.move(5, 5)


def test_a_line_above_the_axis_is_cut_and_its_ring_stays_in_the_chart(race):
    page = race.page
    show(race, "counts")
    page.locator("#ds-race [data-control=tau]").fill("0")
    frame(race)
    figure = page.locator("#ds-race [data-figure=counts-steps]")
    assert "above the axis" in figure.locator(".ds-legend").inner_text()
    lines = """node => {
      const box = node.dataset.box.split(',').map(Number);
      const group = node.querySelector('[clip-path]');
      const id = group.getAttribute('clip-path').slice(5, -1);
      const clip = document.querySelectorAll('#' + id);
      const rect = clip[0].firstElementChild;
      const tops = [...group.querySelectorAll('path')].map((path) => path.getBBox().y);
      return [box[1], Math.min(...tops), +rect.getAttribute('y'), clip.length];
    }"""
    top, line, cut, named = figure.locator("svg").first.evaluate(lines)
    assert line < top, "the test needs a line above the axis"
    assert 0 <= top - cut <= 3
    assert named == 1, "the name is unique on the page"
    chart = figure.locator("svg").first
    chart.focus()
    page.keyboard.press("Home")
    frame(race)
    ring, top, bottom = chart.evaluate(
        """node => {
          const [, top, , bottom] = node.dataset.box.split(',').map(Number);
          return [+node.querySelector('circle[r="6"]').getAttribute('cy'), top, bottom];
        }"""
    )
    assert top - 0.1 <= ring <= bottom + 0.1
    page.locator("#ds-race [data-control=tau]").fill("-1.3")


@pytest.mark.parametrize("width", [1440, 390])
def test_the_controls_fit(race, width):
    page = race.page
    page.set_viewport_size({"width": width, "height": 900})
    frame(race)
    tool(race, "zoom-in").click()
    tool(race, "colours").click()
    frame(race)
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    assert part(race)
    tool(race, "colours").click()
    page.set_viewport_size({"width": 1440, "height": 900})
