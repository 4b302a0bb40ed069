"""The views of a replay file, which cuts its documents, against those of the page."""

from math import isclose, isnan

import pytest

from engine.core.files import ASSETS
from inspector.files import export
from inspector.files.replay import replay_page
from tests.support.chromium import RacePage, Watch
from tests.support.looking import drawn, show

pytest_plugins = ["tests.support.chromium"]
pytestmark = pytest.mark.browser

VIEWS = (
    "drift", "similarity", "scatter", "schedule", "counts", "queries", "error", "lens", "compare",
    "candidates",
)  # fmt: skip
# What the figures of a view have in their CSV files, the texts of its blocks, and the card.
STATE = """async (view) => {
  const taken = [];
  const real = URL.createObjectURL;
  URL.createObjectURL = (blob) => { taken.push(blob.text()); return real(new Blob([])); };
  const click = HTMLAnchorElement.prototype.click;
  HTMLAnchorElement.prototype.click = () => undefined;
  const shown = document.querySelector(`#ds-race .ds-view[data-view=${view}]`);
  const boxes = [shown, document.querySelector("#ds-race [data-inspect-card]")];
  for (const box of boxes)
    for (const key of box.querySelectorAll("[data-figure]:not([hidden]) [data-save=csv]"))
      key.click();
  const files = await Promise.all(taken);
  URL.createObjectURL = real;
  HTMLAnchorElement.prototype.click = click;
  const texts = boxes.flatMap((box) =>
    [...box.querySelectorAll("[data-block]")]
      .filter((node) => node.offsetParent && node.innerText && !node.querySelector("button"))
      .map((node) => node.innerText));
  return { files, texts };
}"""


@pytest.fixture
def replayed(browser, shipped, tmp_path):
    """The bundled example as a replay file."""
    record = export.read_example(ASSETS / "examples")
    caches = shipped.catalog()["caches"]
    path = tmp_path / "replay.html"
    path.write_text(replay_page(record, str, 40_000_000, caches), "utf-8")
    context = browser.new_context(viewport={"width": 1280, "height": 900})
    watch, page = Watch(), context.new_page()
    watch.attach(page)
    page.goto(path.as_uri())
    yield RacePage(page, watch)
    context.close()
    assert watch.errors == []


def put(race, lane, step, layer):
    """Put the cursor at a place and pin its token."""
    race.page.locator(f"#ds-race [data-inspect-lane-{lane}]").click()
    race.page.locator("#ds-race [data-inspect-step]").fill(str(step))
    race.page.locator("#ds-race [data-inspect-layer]").fill(str(layer))
    show(race, "drift")
    canvas = race.page.locator("#ds-race [data-figure=drift-layers] canvas")
    canvas.focus()
    race.page.keyboard.press("End")
    drawn(race)


def values(line):
    """The cells of a line of a CSV file: numbers as such."""
    return [number(cell) for cell in line.split(",")]


def number(text):
    try:
        return float(text)
    except ValueError:
        return text


def alike(one, other):
    """Whether two cells are equal, numbers up to rounding."""
    if isinstance(one, float) and isinstance(other, float):
        both_nan = isnan(one) and isnan(other)
        return both_nan or isclose(one, other, rel_tol=1e-5, abs_tol=1e-7)
    return one == other


def differ(mine, theirs):
    """Whether two lines of CSV files have other cells."""
    one, other = values(mine), values(theirs)
    return len(one) != len(other) or not all(map(alike, one, other))


def test_a_replay_file_draws_what_the_page_draws(example, replayed):
    served = example
    for lane in ("b", "a"):
        for race in (served, replayed):
            put(race, lane, 7, 3)
        for view in VIEWS:
            for race in (served, replayed):
                show(race, view)
            one, other = (race.page.evaluate(STATE, view) for race in (served, replayed))
            assert one["files"], view
            assert one["texts"] == other["texts"], view
            for mine, theirs in zip(one["files"], other["files"], strict=True):
                pairs = zip(mine.splitlines(), theirs.splitlines(), strict=True)
                odd = [(a, b) for a, b in pairs if a != b and differ(a, b)]
                assert not odd, (view, odd[:3])
