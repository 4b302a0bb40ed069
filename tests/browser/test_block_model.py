"""The embedded block diffusion model in Chromium: a race, what it refuses, and its lesson."""

import numpy as np
import pytest

from engine.trace.trace import Trace
from tests.support.browser import ROOT
from tests.support.looking import show

pytest_plugins = ["tests.support.chromium"]
pytestmark = pytest.mark.browser
LESSONS = ROOT / "assets" / "examples" / "lessons"
BLOCKS = {
    "model": "tiny-block", "a.unmasker": "fast_dllm_v2", "b.unmasker": "fast_dllm_v2",
    "b.cache": "frozen",
}  # fmt: skip


@pytest.fixture(scope="module")
def race(app, lasting_page):
    """A page with the settings of a race of the model."""
    return lasting_page(1440, 1000).open(app.link(**BLOCKS))


def open_tab(race, name):
    race.page.get_by_role("tab", name=name, exact=True).click()


def choose_cache(race, title):
    """Choose lane B's cache."""
    race.page.locator("#ds-b-cache input").click()
    race.page.get_by_role("option", name=title, exact=True).click()


def test_frozen_blocks_give_the_tokens_of_plain_decoding_in_less_work(race):
    open_tab(race, "Run")
    race.finish()
    cells = [race.page.locator(f"#ds-race [data-lane={lane}] .ds-cell") for lane in "ab"]
    texts = [one.all_inner_texts() for one in cells]
    assert texts[0] == texts[1] != []
    assert "every token agrees" in race.text("[data-chips]")
    race.page.locator("#ds-race [data-inspect-lane-b]").click()
    show(race, "schedule")


def test_a_cache_that_needs_the_whole_canvas_is_refused_by_name(race):
    open_tab(race, "Run")
    race.settings()
    choose_cache(race, "Fast-dLLM dual cache")
    race.planned("choose frozen, which is exact")
    choose_cache(race, "Frozen blocks")
    race.planned("Frozen blocks")


def test_the_lesson_asks_for_the_commit_call_and_checks_it(race):
    page = race.page
    open_tab(race, "Learn")
    page.locator('[data-lessons] [data-key="blocks"]').click()
    page.wait_for_function(
        "document.querySelector('#ds-learn [data-inspect]')?.dataset.ready === 'error'"
    )
    trace = Trace.load(LESSONS / "block_frozen.npz")
    rows = trace.region_rows(np.arange(1))[0, 1]
    computed = trace.recompute_map()[..., rows].any((1, 2, 3))
    step = int(np.flatnonzero(computed)[-1]) + 1
    said = page.locator("[data-lesson-verdict]")
    for given, words in ((step - 1, "move further right"), (step, "Right. Step")):
        page.locator("[data-lesson-number]").fill(str(given))
        page.locator("[data-lesson-check]").click()
        said.filter(has_text=words).wait_for()
