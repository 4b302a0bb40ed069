"""The glossary in a real Chromium: opened from a term by keyboard, read, closed by Escape."""

import json

import pytest

from tests.support.axe import findings
from tests.support.browser import ROOT

pytest_plugins = ["tests.support.chromium"]
pytestmark = pytest.mark.browser

TERM = "#ds-race .ds-about .ds-term[data-term=block]"
ENTRIES = """() => {
  const known = new Set([...document.querySelectorAll('#ds-glossary [data-entry]')].map((e) => e.dataset.entry));
  const links = [...document.querySelectorAll('[data-term]')].map((e) => e.dataset.term).filter(Boolean);
  return [known.size, links.length, links.filter((name) => !known.has(name))];
}"""  # noqa: E501
FOCUS = "() => document.activeElement.dataset.entry || document.activeElement.dataset.term || ''"
INSIDE = """() => {
  const box = document.querySelector('#ds-glossary').getBoundingClientRect();
  return box.left >= 0 && box.right <= innerWidth && box.top >= 0 && box.bottom <= innerHeight;
}"""


@pytest.fixture(scope="module")
def opened(example):
    """A page whose inspector shows words of the glossary; in the end it is on its first tab."""
    page = example.page
    page.locator("#ds-race [data-inspect]").scroll_into_view_if_needed()
    page.locator('#ds-race [data-tab="schedule"]').click()
    yield page
    page.get_by_role("tab", name="Run", exact=True).click()


@pytest.fixture
def page(opened):
    """The same, wide, on its first tab, with the glossary closed."""
    opened.set_viewport_size({"width": 1280, "height": 900})
    opened.get_by_role("tab", name="Run", exact=True).click()
    if opened.locator("#ds-glossary").is_visible():
        opened.keyboard.press("Escape")
    opened.locator(TERM).wait_for()
    return opened


def test_a_term_opens_its_entry_by_keyboard_and_escape_returns(page):
    page.locator(TERM).focus()
    page.keyboard.press("Enter")
    dialog = page.get_by_role("dialog", name="Glossary")
    dialog.wait_for()
    assert page.evaluate(FOCUS) == "block"
    entry = dialog.locator("[data-entry=block]")
    assert entry.is_visible()
    assert "consecutive positions" in entry.inner_text()
    assert "ds-chosen" in (entry.get_attribute("class") or "")
    page.keyboard.press("Tab")
    assert page.evaluate("document.querySelector('#ds-glossary').contains(document.activeElement)")
    page.keyboard.press("Escape")
    dialog.wait_for(state="hidden")
    assert page.evaluate(FOCUS) == "block"
    assert page.locator(f"{TERM}:focus").count() == 1


@pytest.mark.parametrize("width", [390, 1400])
def test_the_dialog_fits_and_is_accessible(page, width):
    page.set_viewport_size({"width": width, "height": 800})
    page.locator(TERM).click()
    page.locator("#ds-glossary").wait_for()
    assert page.evaluate(INSIDE)
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    assert findings(page, "#ds-glossary") == []
    page.get_by_role("button", name="Close").click()
    page.locator("#ds-glossary").wait_for(state="hidden")


def test_every_link_on_the_page_has_an_entry(page):
    for tab, ready in (("Learn", "[data-lesson-see] .ds-term"), ("Methods", ".ds-method-prose p")):
        page.get_by_role("tab", name=tab, exact=True).click()
        page.locator(ready).first.wait_for()
    page.get_by_role("button", name="Glossary").click()
    page.locator("#ds-glossary").wait_for()
    entries, links, dead = page.evaluate(ENTRIES)
    page.get_by_role("button", name="Close").click()
    glossary = json.loads((ROOT / "inspector" / "static" / "glossary.json").read_text())
    assert entries == len(glossary)
    assert links > 20
    assert dead == []
