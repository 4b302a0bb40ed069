"""A race of 1,024 tokens after a prompt of 2,048: folded blocks, and only changed cells drawn."""

import pytest

from tests.support import long_race
from tests.support.chromium import Watch

pytest_plugins = ["tests.support.chromium"]
pytestmark = pytest.mark.browser

STEPS = 4
# The places of lane A whose cells change while a message is taken.
CHANGED = """async (text) => {
  const places = new Set();
  const watch = new MutationObserver((all) => {
    for (const { target } of all) {
      const cell = (target.nodeType === 1 ? target : target.parentElement)?.closest("[data-i]");
      if (cell) places.add(+cell.dataset.i);
    }
  });
  const grid = document.querySelector("[data-lane=a] [data-grid]");
  watch.observe(grid, { subtree: true, childList: true, attributes: true, characterData: true });
  window.take(text);
  await new Promise((done) => setTimeout(done));
  watch.disconnect();
  return [...places].sort((a, b) => a - b);
}"""


@pytest.fixture
def page(browser):
    context = browser.new_context(viewport={"width": 1280, "height": 900})
    watch, page = Watch(), context.new_page()
    watch.attach(page)
    yield page
    context.close()
    assert watch.errors == []


def blocks(page, name=""):
    """The blocks of lane A that have a class, counted from 1."""
    every = page.locator("[data-lane=a] .ds-block")
    classes = every.evaluate_all("all => all.map(one => one.className)")
    return [i + 1 for i, own in enumerate(classes) if name in own.split()]


def committed(low, high):
    """The places that the steps of lane A from `low` to before `high` reveal."""
    return sorted(place for row in long_race.lane_rows("a")[low:high] for place in row[7][::3])


def test_a_message_redraws_only_the_cells_that_it_changes(page):
    first, *more = long_race.messages(STEPS)
    long_race.show(page, first)
    for text in more[:9]:
        page.evaluate("text => window.take(text)", text)
    before = committed(9 * STEPS - 1, 9 * STEPS)  # new until now, settled from now on
    fresh = committed(9 * STEPS, 10 * STEPS)
    # Lane B is ahead and has the same tokens, so no cell of A differs.
    assert page.evaluate(CHANGED, more[9]) == sorted(before + fresh)


def test_blocks_without_news_are_folded_while_the_race_runs(page):
    first, *more = long_race.messages(STEPS)
    long_race.show(page, first)
    for text in more[:17]:
        page.evaluate("text => window.take(text)", text)
    assert blocks(page, "ds-folded") == [1, 2, *range(4, 33)]
    lines = page.locator("[data-lane=a] .ds-block-line").all_inner_texts()
    assert lines[0].startswith("the value of nuts")
    assert lines[31] == "32 masks"
    page.locator("[data-blocks]").select_option("open")
    assert blocks(page, "ds-folded") == []


def test_a_folded_block_opens_by_mouse_and_by_keyboard(page):
    long_race.show(page, long_race.whole())
    assert len(blocks(page, "ds-folded")) >= 31
    name = page.locator("[data-lane=a] button.ds-block-name").nth(4)
    name.click()
    assert 5 not in blocks(page, "ds-folded")
    assert name.get_attribute("aria-expanded") == "true"
    name.click()
    assert 5 in blocks(page, "ds-folded")
    page.locator("[data-lane=a] [data-grid]").focus()
    for _ in range(5):
        page.keyboard.press("ArrowDown")
    assert page.locator("[data-lane=a] .ds-selected:visible").get_attribute("data-i") == "32"
    assert 2 not in blocks(page, "ds-folded")
    assert 1 in blocks(page, "ds-folded")
    page.keyboard.press("End")
    assert 2 in blocks(page, "ds-folded")


def test_a_short_answer_is_never_folded(page):
    start = long_race.messages(1)[0]
    assert '"length":1024' in start
    long_race.show(page, start.replace('"length":1024', '"length":256'))
    assert page.locator("button.ds-block-name").count() == 0
    assert not page.locator("[data-blocks]").is_visible()


def test_the_middle_of_a_long_prompt_is_folded(page):
    long_race.show(page, long_race.whole())
    page.locator("[data-prompt-box] summary").click()
    cells = page.locator("[data-prompt] .ds-fixed")
    page.get_by_role("button", name="Show 1,664 more tokens").click()
    assert cells.count() == long_race.PROMPT


def test_a_long_race_fits_a_telephone(page):
    page.set_viewport_size({"width": 390, "height": 800})
    long_race.show(page, long_race.whole(), "dark")
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
