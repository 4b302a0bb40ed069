"""Compare: when the lanes diverge, the probe of that step, and its layers in the order of error."""

import re
from dataclasses import replace

import pytest

from engine.config.spec import RaceSpec, RunSpec
from tests.support.browser import PROMPT
from tests.support.looking import bring_race, drawn, show

pytest_plugins = ["tests.support.chromium"]
pytestmark = pytest.mark.browser
STEP = re.compile(r"In time, the lanes diverge at step (\d+): A commits .+; B commits .+\.")


@pytest.fixture(scope="module")
def race(viewer, tmp_path_factory):
    """A finished race of plain decoding and a dual cache."""
    plain = RunSpec(prompt=PROMPT, gen_length=32, block_length=16, steps=32)
    race = RaceSpec(plain, replace(plain, cache="dual"))
    bring_race(viewer, race, tmp_path_factory.mktemp("race"))
    return viewer


def parting(race):
    """The number of the step at which the lanes diverge."""
    show(race, "compare")
    found = STEP.search(race.text('[data-block="parting"]'))
    assert found, race.text('[data-block="parting"]')
    return int(found[1])


def probed(race):
    """The probed steps of the lane of the cursor, as the page lists them."""
    show(race, "error")
    keys = race.page.locator("#ds-race .ds-view[data-view=error] [data-probe]")
    return [int(key) for key in keys.all_inner_texts()]


def test_one_click_probes_the_step_and_ranks_its_layers(race):
    page, step = race.page, parting(race)
    page.locator("#ds-race [data-parting=probe]").click()
    race.over()
    show(race, "compare")
    words = race.text('[data-block="layers"]')
    assert "Lane A: no layer has an error" in words
    assert "Lane B: the first layer with an error is layer" in words
    rows = page.locator("#ds-race .ds-ranked tr").all()[1:]
    cells = [[cell.inner_text() for cell in row.locator("td").all()] for row in rows]
    errors = [float(row[4]) for row in cells]
    assert errors == sorted(errors, reverse=True)
    assert errors[0] > 0
    page.locator('#ds-race [data-control="site"]:visible').select_option("0")
    drawn(race)
    first = page.locator("#ds-race .ds-ranked [data-layer]").first
    first.click()
    assert first.get_attribute("aria-pressed") == "true"
    inspect = page.locator("#ds-race [data-inspect]")
    assert inspect.get_attribute("data-layer") == first.get_attribute("data-layer")
    page.locator("#ds-race [data-parting=open]").click()
    assert inspect.get_attribute("data-view") == "error"
    assert inspect.get_attribute("data-lane") == "b"
    assert inspect.get_attribute("data-step") == str(step - 1)
    assert probed(race) == [step]


def test_the_steps_to_probe_can_be_written(race):
    page = race.page
    field = page.locator("#ds-race [data-probe-at]")
    field.fill("5, x")
    begun = race.begun
    page.locator("#ds-race [data-record=probe]").click()
    assert "“x” is no step" in field.evaluate("node => node.validationMessage")
    assert race.begun == begun
    field.fill("5, 9-10")
    page.locator("#ds-race [data-record=probe]").click()
    race.over()
    assert probed(race) == [5, 9, 10]
