"""Controls on a phone's screen: nothing that is chosen or read is cut off at its edge."""

import pytest

pytest_plugins = ["tests.support.chromium"]
pytestmark = pytest.mark.browser
BEYOND = """(selector) => [...document.querySelectorAll(selector)]
  .filter((e) => e.offsetParent && e.getBoundingClientRect().right > innerWidth)
  .map((e) => e.outerHTML.slice(0, 80))"""


def test_the_answers_to_choose_from_in_a_lesson_stay_on_the_screen(app, new_page):
    page = new_page(390, 844).page
    page.goto(f"{app.url}/?lesson=clocks")
    page.locator("[data-lesson-select]").wait_for()
    assert page.evaluate(BEYOND, ".ds-lesson :is(select, input, button)") == []
