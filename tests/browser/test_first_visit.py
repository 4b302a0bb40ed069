"""What a first visitor meets: where the inspector opens, its tabs, and settings beside it."""

import re

import pytest

from tests.support.looking import show

pytest_plugins = ["tests.support.chromium"]
pytestmark = pytest.mark.browser
GROUPS = {
    "What drifted?": ["drift", "similarity", "scatter", "experts"],
    "What was recomputed?": ["schedule", "counts", "queries"],
    "What did it cost and change?": [
        "error",
        "lens",
        "time",
        "compare",
        "candidates",
        "what_if",
        "guider",
    ],
}
PLACE = "e => [e.dataset.view, e.dataset.lane, +e.dataset.step]"


@pytest.fixture(scope="module")
def example(app, lasting_page):
    """A page that shows the bundled example, as it opens."""
    return lasting_page(1440, reduced_motion="reduce").open(app.url)


def inspector(race):
    return race.page.locator("#ds-race [data-inspect]")


def test_the_inspector_opens_on_lane_b_at_a_step_that_shows_something(example):
    assert example.shown("a") == example.shown("b") == 64, "the race is shown at its end"
    inspector(example).scroll_into_view_if_needed()
    example.page.locator("#ds-race [data-inspect][data-ready=schedule]").wait_for()
    assert inspector(example).evaluate(PLACE) == ["schedule", "b", 6]
    assert example.data("frame-b") == "7"
    link = example.page.locator("#ds-link-field").input_value()
    assert "cursor=" not in link
    assert "look=" not in link


def test_the_tabs_stand_in_three_named_groups(example):
    found = example.page.evaluate(
        """() => [...document.querySelectorAll('#ds-race [data-inspect] [role=tablist]')].map((e) =>
          [document.getElementById(e.getAttribute('aria-labelledby')).textContent,
           [...e.querySelectorAll('[role=tab]')].map((tab) => tab.dataset.tab)])"""
    )
    assert dict(found) == GROUPS
    tab = example.page.locator("#ds-race [data-tab=experts]")
    tab.click()
    tab.press("ArrowRight")
    assert inspector(example).get_attribute("data-view") == "schedule"
    focused = "document.activeElement.dataset.tab"
    assert example.page.evaluate(focused) == "schedule"


def test_each_tab_controls_the_panel_that_the_chosen_one_names(example):
    show(example, "drift")
    panel = example.page.locator("#ds-race [data-inspect-panel]")
    chosen = example.page.locator("#ds-race [data-tab=drift]")
    assert panel.get_attribute("aria-labelledby") == chosen.get_attribute("id")
    ids = example.page.evaluate("[...document.querySelectorAll('[id^=ds-views]')].map((e) => e.id)")
    assert len(ids) == len(set(ids))
    for tab in example.page.locator("#ds-race [data-inspect] [role=tab]").all():
        assert tab.get_attribute("aria-controls") == panel.get_attribute("id")
    show(example, "schedule")
    assert panel.get_attribute("aria-labelledby").endswith("-schedule")


def test_views_without_data_are_marked(example):
    empty = example.page.locator("#ds-race .ds-tab.ds-empty")
    assert empty.evaluate_all("tabs => tabs.map((tab) => tab.dataset.tab)") == ["experts", "guider"]
    for tab, title in zip(empty.all(), ("Expert changes", "AR guider"), strict=True):
        assert tab.inner_text().replace("\n", "") == f"{title} ∅, nothing to show"
        assert tab.get_attribute("title") == "This run has no data for this view."
    marks = example.page.locator("#ds-race [data-tab=drift] [data-nothing]")
    assert marks.is_hidden()


def test_the_step_moves_by_one_with_buttons_and_keys(example):
    step = example.page.locator("#ds-race [data-inspect-step]")
    step.fill("3")

    def now():
        return int(inspector(example).get_attribute("data-step"))

    example.page.locator("#ds-race [data-inspect-step-on]").click()
    assert now() == 4
    for _ in range(2):
        example.page.locator("#ds-race [data-inspect-step-back]").click()
    assert now() == 2
    step.press("ArrowRight")
    assert now() == 3
    step.fill("0")
    example.page.locator("#ds-race [data-inspect-step-back]").click()
    assert now() == 0


def test_the_recorded_runs_have_a_label_and_a_hint(example):
    box = example.page.locator("#ds-recorded")
    assert "Recorded runs" in box.inner_text()
    assert "Choose a method to see its recorded run" in box.inner_text()


def test_run_stays_in_sight_beside_open_settings(example):
    page = example.page
    example.settings()
    for width in (390, 1440):
        page.set_viewport_size({"width": width, "height": 900})
        run = page.locator("#ds-run")
        for place in (0, 600, 3_000):
            page.evaluate("y => scrollTo(0, y)", place)
            box = run.bounding_box()
            assert box["y"] >= 0
            assert box["y"] + box["height"] <= 900
            at = [box["x"] + box["width"] / 2, box["y"] + box["height"] / 2]
            top = "([x, y]) => document.elementFromPoint(x, y).closest('button')?.id"
            assert page.evaluate(top, at) == "ds-run"
    example.settings(shown=False)


def test_eps_of_dream_stands_at_its_value(example):
    example.settings()
    example.page.locator("#ds-b-unmasker input").click()
    example.page.get_by_role("option", name="Dream", exact=True).click()
    eps = example.page.locator("#ds-b-dream-eps input")
    eps.first.wait_for()
    example.settings(shown=False)
    assert eps.evaluate_all("all => all.map((e) => [e.type, e.value])") == [["number", "0.001"]]


def test_a_run_that_is_gone_is_not_read_for_ever(app, new_page):
    race = new_page().open(app.url)
    gone = {"detail": "This run is no longer in memory. Run it again.", "field": "run"}
    race.page.route(
        re.compile("/driftscope/slice"), lambda route: route.fulfill(status=404, json=gone)
    )
    inspector(race).scroll_into_view_if_needed()
    note = race.page.locator("#ds-race [data-inspect-panel] .ds-note:not([hidden])")
    race.page.wait_for_function(
        "document.querySelector('#ds-race [data-inspect-panel] .ds-note')"
        "?.textContent.startsWith('This run is no longer')"
    )
    assert "Reading" not in note.inner_text()
    assert all("404" in error for error in race.watch.errors)
    race.watch.errors.clear()
