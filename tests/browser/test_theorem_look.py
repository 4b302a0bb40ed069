"""The theorem widget's drawing, widths, targets and contrast in a real Chromium."""

import pytest

from tests.support.looking import illegible, inks, recolour

pytest_plugins = ["tests.support.chromium", "tests.support.theorem"]
pytestmark = pytest.mark.browser


def area(page, name, colour):
    """How many pixels of a canvas have exactly a colour."""
    script = """(canvas, colour) => {
      const { data } = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height);
      let count = 0;
      for (let i = 0; i < data.length; i += 4) {
        if (data[i + 3] === 255 && data.slice(i, i + 3).join() === colour) count += 1;
      }
      return count;
    }"""
    return page.locator(f"canvas[data-{name}]").evaluate(script, colour)


@pytest.mark.parametrize(
    ("theme", "blue"), [("light", "0,114,178"), ("dark", "86,180,233")], ids=["light", "dark"]
)
def test_the_bars_of_p_have_its_mass(widget, theme, blue):
    """The bars' lengths sum to 1, so their area is inverse to the scale's end: 0.5, then 1."""
    recolour(widget.page, theme == "dark")
    widget.slide(2, 30, 0)
    half = area(widget.page, "bars", blue)
    widget.slide(2, 5, 0)
    assert half / area(widget.page, "bars", blue) == pytest.approx(2, rel=0.04)


def test_the_zone_ends_where_the_theorem_does(widget):
    widget.page.set_viewport_size({"width": 1440, "height": 900})
    widget.slide(2, 60, 0)
    script = """(canvas, [k, epsilon]) => {
      const x = 30 + epsilon / 0.75 * (canvas.clientWidth - 44 - 30);
      const y = 6 + 34 * (6 - k) + 8;
      return canvas.getContext('2d').getImageData(x, y, 1, 1).data[3] > 0;
    }"""
    canvas = widget.page.locator("canvas[data-zone]")
    for k in range(2, 7):
        for shift, tinted in ((-0.01, True), (0.012, False)):
            assert canvas.evaluate(script, [k, 1 / (k + 1) + shift]) == tinted, (k, shift)


def unfold(page):
    """Have the table of the outcomes open."""
    page.locator("details").evaluate("e => { e.open = true; }")


@pytest.mark.parametrize("width", [390, 768, 1440])
@pytest.mark.parametrize("k", [2, 6])
def test_no_width_scrolls_sideways(widget, width, k):
    widget.page.set_viewport_size({"width": width, "height": 844})
    fits = "document.documentElement.scrollWidth <= innerWidth"
    widget.slide(k, 40, 1)
    unfold(widget.page)
    assert widget.page.evaluate(fits)
    widget.press("house")
    assert widget.page.evaluate(fits)


def test_fingers_have_room(new_widget):
    page = new_widget(390, 844, has_touch=True, is_mobile=True).page
    targets = page.locator("#ds-theorem :is(input, button, summary)").all()
    assert len(targets) == 7
    for target in targets:
        assert target.bounding_box()["height"] >= 44


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_text_is_legible(widget, theme):
    page = widget.page
    recolour(page, theme == "dark")
    unfold(page)
    found = inks(page, ".ds-theorem *")
    assert len(found) > 30
    assert illegible(found) == set()
