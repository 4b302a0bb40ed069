"""Many prompts: run, stop, load the page again, continue, aggregates, the race of one prompt."""

import json

import pytest

pytest_plugins = ["tests.support.chromium"]
pytestmark = pytest.mark.browser
PROMPTS = (
    "Nuts cost 9 dollars each. Lily buys 5 nuts. How much does she pay?",
    "Stamps cost 3 dollars each. Nora buys 3 stamps. How much does she pay?",
    "Zoe starts with 25 stamps. Nora gives her 5 more. How many stamps does Zoe have now?",
)


def tab(race):
    race.page.get_by_role("tab", name="Many prompts", exact=True).click()
    race.page.locator("#ds-batch-prompts textarea").wait_for()
    race.written()


def wait(race, state, done=0):
    """Wait until the batch is in a state and so many runs are over."""
    race.until(
        "([state, done]) => { const { dataset } = document.querySelector('[data-batch]');"
        " return dataset.state === state && +dataset.done >= done; }",
        [state, done],
    )


def has_focus(page, name):
    """Wait until a button has the focus, and return it."""
    page.wait_for_function("(name) => document.activeElement.id === name", arg=name)
    return page.locator(f"#{name}")


def test_three_prompts_are_stopped_continued_and_one_is_raced(app, new_page):
    race = new_page(1440).open(app.link(gen_length="48", **{"a.steps": "48"}))
    page = race.page
    tab(race)
    page.locator("#ds-batch-prompts textarea").fill("\n".join(PROMPTS))
    page.locator("#ds-batch-run").press("Enter")
    wait(race, "running", 1)
    has_focus(page, "ds-batch-stop").press("Enter")
    wait(race, "stopped", 1)
    has_focus(page, "ds-batch-continue")
    done = int(page.locator("[data-batch]").get_attribute("data-done"))
    assert 1 <= done < 6
    race.settled()
    race.open(page.url)
    tab(race)
    wait(race, "stopped", done)
    assert page.locator("#ds-batch-prompts textarea").input_value() == "\n".join(PROMPTS)
    page.locator("#ds-batch-continue:not([disabled])").click()
    wait(race, "done", 6)
    rows = page.locator("[data-batch-prompts] tbody tr")
    page.wait_for_function(
        "() => document.querySelectorAll('[data-batch-prompts] [data-batch-race]').length === 3"
    )
    assert rows.count() == 3
    assert PROMPTS[1] in rows.nth(1).inner_text()
    settings = page.locator("[data-batch-settings] tbody tr")
    assert settings.nth(0).locator("td").nth(1).inner_text() == "100 %"
    assert page.locator("[data-figure=batch-agreement] .ds-drawing svg").is_visible()
    assert not page.locator("[data-batch-aggregates]").is_visible()
    with page.expect_download() as download:
        page.locator("[data-batch-save=results]").click()
    saved = json.loads(download.value.path().read_text())
    assert len(saved["runs"]) == 6
    page.locator('[data-batch-race="2.1"]').press("Enter")
    page.locator("#ds-race").wait_for(state="visible")
    page.wait_for_function("document.activeElement.matches('#ds-race .ds')")
    race.wait_state("done")
    race.settings()
    assert page.locator("#ds-prompt textarea").input_value() == PROMPTS[2]


def test_a_refusal_is_named_and_recordings_are_summed_up(app, new_page):
    race = new_page(1440).open(app.link(gen_length="8", block_length="4", **{"a.steps": "8"}))
    page = race.page
    tab(race)
    page.locator("#ds-batch-prompts textarea").fill(" ")
    page.locator("#ds-batch-run").click()
    wait(race, "refused")
    assert "prompts: there are none" in page.locator("[data-batch-state]").inner_text()
    page.locator("#ds-batch-prompts textarea").fill("\n".join(PROMPTS[:2]))
    page.locator("#ds-batch-record input").click()
    page.get_by_role("option", name="probe").click()
    page.locator("#ds-batch-run:not([disabled])").click()
    wait(race, "done", 4)
    page.locator("[data-figure=batch-error] .ds-drawing svg").wait_for()
    page.get_by_text("Aggregate of 2 runs,").first.wait_for()
    caption = page.locator("[data-figure=batch-drift] figcaption").inner_text()
    assert caption.startswith("Aggregate of 2 runs, ")
    assert "drift of V by layer" in caption
    page.locator("[data-batch-quantity]").select_option("k")
    assert "drift of K" in page.locator("[data-figure=batch-drift] figcaption").inner_text()
    with page.expect_download() as download:
        page.locator("[data-figure=batch-counts] [data-save=csv]").click()
    assert download.value.path().read_text().startswith("threshold,layer,share of the rows")
    with page.expect_download() as download:
        page.locator("[data-batch-save=aggregates]").click()
    assert json.loads(download.value.path().read_text())["level"] == "probe"
