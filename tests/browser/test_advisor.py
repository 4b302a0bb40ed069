"""The advisor's tab: from prompts to the race of the chosen setting, a refusal, and its files."""

import json

import pytest

from engine.config.run_card import race_of

pytest_plugins = ["tests.support.chromium"]
pytestmark = pytest.mark.browser


def tab(race):
    race.page.get_by_role("tab", name="Advisor", exact=True).click()
    race.page.locator("#ds-advice-count input").wait_for()
    race.written()


def wait(race, state):
    race.until("state => document.querySelector('[data-advice]').dataset.state === state", state)


def search(page, problems):
    """Search the dual cache with few problems and settings."""
    page.locator("#ds-advice-count input").fill(problems)
    page.locator("#ds-advice-shots input[type=number]").fill("0")
    page.locator("#ds-advice-candidates input[type=number]").fill("4")
    page.locator("#ds-advice-cache input").click()
    page.get_by_role("option", name="Fast-dLLM dual cache").click()
    page.locator("#ds-advice-run:not([disabled])").click()


def test_a_search_ends_in_a_race_of_the_chosen_setting(app, lasting_page):
    link = app.link(gen_length="8", block_length="4", **{"a.steps": "8", "b.unmasker": "quota"})
    race = lasting_page(1440).open(link)
    page = race.page
    tab(race)
    search(page, "2")
    wait(race, "refused")
    assert "prompts: 2 are too few" in page.locator("[data-advice-state]").inner_text()
    page.locator("#ds-advice-keep input[type=number]").fill("1")
    page.locator("#ds-advice-of input").click()
    page.get_by_role("option", name="the tokens of its text").click()
    search(page, "6")
    wait(race, "done")
    page.locator("[data-figure=advice-front] .ds-drawing svg").wait_for()
    with page.expect_download() as download:
        page.locator("[data-advice-save=card]").click()
    card = json.loads(download.value.path().read_text())
    name = card["advice"]["setting"]["name"]
    assert race_of(card).b.cache == "dual"
    assert card["environment"]["torch"]
    rows = page.locator("[data-advice-table] tbody tr")
    assert rows.filter(has_text=f"{name} (chosen)").count() == 1
    assert page.locator("[data-advice-untested] li").count() >= 3
    page.locator("[data-advice-race-chosen]").click()
    page.locator("#ds-race").wait_for(state="visible")
    race.wait_state("done")
    race.settings()
    assert "dual" in page.locator("#ds-b-cache input").input_value()
