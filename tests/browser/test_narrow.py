"""A phone's screen: nothing that is chosen or read is cut off at its edge."""

import pytest

from tests.browser.test_learn import READY, at_lesson, choose

pytest_plugins = ["tests.support.chromium"]
pytestmark = pytest.mark.browser
BEYOND = """(selector) => [...document.querySelectorAll(selector)]
  .filter((e) => e.offsetParent && e.getBoundingClientRect().right > innerWidth)
  .map((e) => e.outerHTML.slice(0, 80))"""


@pytest.fixture(scope="module")
def narrow(app, lasting_page):
    """The lessons on a small screen, opened by a link to one and to the dark theme."""
    page = lasting_page(390, 844).page
    page.goto(f"{app.url}/?lesson=queries&__theme=dark")
    page.wait_for_function(READY.format("queries"))
    return page


def test_a_link_chooses_the_theme(narrow):
    assert narrow.evaluate("document.body.classList.contains('dark')")


def test_a_text_that_begins_to_scroll_is_reached_by_keyboard(narrow):
    for tab, text in (("Run", "[data-question]"), ("Learn", "[data-lesson-problem]")):
        narrow.get_by_role("tab", name=tab, exact=True).click()
        narrow.locator(text).evaluate("e => (e.style.maxHeight = '12px')")
        narrow.wait_for_function("text => document.querySelector(text).tabIndex === 0", arg=text)
        narrow.locator(text).evaluate("e => (e.style.maxHeight = '')")


def test_a_long_question_of_the_lanes_is_reached_by_keyboard(narrow):
    narrow.get_by_role("tab", name="Run", exact=True).click()
    other = "#ds-race [data-other]"
    narrow.locator(other).evaluate(
        "e => Object.assign(e, { hidden: false, textContent: 'Word. '.repeat(2000) })"
    )
    narrow.wait_for_function("other => document.querySelector(other).tabIndex === 0", arg=other)
    narrow.locator(other).evaluate("e => (e.hidden = true)")
    narrow.get_by_role("tab", name="Learn", exact=True).click()


@pytest.mark.parametrize(("key", "view"), [("queries", "queries"), ("terms", "compare")])
def test_the_open_tab_of_a_lesson_is_in_sight_and_words_stay_whole(narrow, key, view):
    page = at_lesson(narrow, key, view)
    assert page.evaluate("document.documentElement.scrollWidth") == 390
    tab = page.locator(f"#ds-learn [data-tab={view}]").bounding_box()
    assert tab["x"] >= 0
    assert tab["x"] + tab["width"] <= 390
    choose(page, "dare_o" if key == "queries" else "guided")
    heads = page.locator("#ds-learn [data-block=numbers] th")
    assert heads.filter(has_text="Number answered").bounding_box()["width"] > 90


def test_the_answers_to_choose_from_in_a_lesson_stay_on_the_screen(narrow):
    page = at_lesson(narrow, "clocks", "schedule")
    page.locator("[data-lesson-select]").wait_for()
    assert page.evaluate(BEYOND, ".ds-lesson :is(select, input, button)") == []
