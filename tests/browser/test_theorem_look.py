"""The theorem widget's drawing, widths, targets and contrast in a real Chromium."""

import pytest

from tests.support.chromium import touched
from tests.support.looking import illegible, inks, recolour

pytest_plugins = ["tests.support.chromium", "tests.support.theorem"]
pytestmark = pytest.mark.browser


def areas(page):
    """The areas of the bars of p."""
    script = "all => all.map((bar) => bar.width.baseVal.value * bar.height.baseVal.value)"
    return page.locator("svg[data-bars] rect[data-bar=p]").evaluate_all(script)


@pytest.mark.parametrize(
    ("dark", "blue"), [(False, "rgb(0, 114, 178)"), (True, "rgb(86, 180, 233)")]
)
def test_the_bars_of_p_have_the_colour_of_the_theme(widget, dark, blue):
    recolour(widget.page, dark)
    bars = widget.page.locator("svg[data-bars] rect[data-bar=p]")
    assert set(bars.evaluate_all("all => all.map((bar) => getComputedStyle(bar).fill)")) == {blue}


def test_the_bars_of_p_have_its_mass(widget):
    """The bars' lengths sum to 1, so their area is inverse to the scale's end: 0.5, then 1."""
    widget.slide(2, 30, 0)
    half = sum(areas(widget.page))
    widget.slide(2, 5, 0)
    assert half / sum(areas(widget.page)) == pytest.approx(2, rel=0.04)


def test_the_zone_ends_where_the_theorem_does(widget):
    """The zone of k tokens ends at 1/(k + 1), on a scale that is the same for all k."""
    widget.page.set_viewport_size({"width": 1440, "height": 900})
    widget.slide(2, 60, 0)
    width = "bar => bar.width.baseVal.value"
    ends = {
        k: widget.page.locator(f'svg[data-zone] rect[data-tokens="{k}"]').evaluate(width) * (k + 1)
        for k in range(2, 7)
    }
    assert max(ends.values()) == pytest.approx(min(ends.values()), rel=0.01)
    wide = widget.page.locator("svg[data-zone]").evaluate("e => e.clientWidth")
    assert 0.8 * wide < 0.75 * ends[2] < wide  # the scale ends at 0.75


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


def test_fingers_have_room(widget):
    widget.page.set_viewport_size({"width": 390, "height": 844})
    targets = widget.page.locator("#ds-theorem :is(input, button, summary)")
    assert targets.count() == 7
    with touched(widget.page):
        heights = targets.evaluate_all("all => all.map((e) => e.getBoundingClientRect().height)")
    assert min(heights) >= 44


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_text_is_legible(widget, theme):
    page = widget.page
    recolour(page, theme == "dark")
    unfold(page)
    found = inks(page, ".ds-theorem *")
    assert len(found) > 30
    assert illegible(found) == set()
