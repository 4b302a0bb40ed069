"""A race in a real headless Chromium: live, stopped, stepped, left, and whole at its end."""

import re
import time

import pytest
from gradio_client.exceptions import AppError

from tests.support.browser import FINAL, LONG, PROMPT, ROOT
from tests.support.web import program

pytest_plugins = ["tests.support.chromium"]
pytestmark = pytest.mark.browser
MIDDLE = LONG | {"gen_length": "256", "a.steps": "256", "b.steps": "256"}
RECORDED = (ROOT / "assets" / "examples" / "a.npz").is_file()


@pytest.fixture(scope="module")
def default(app, lasting_page):
    """A page as it opens without a link."""
    return lasting_page().open(app.url)


@pytest.fixture(scope="module")
def middle(app, lasting_page):
    """A page with the settings of a race that is long enough to be paused."""
    return lasting_page().open(app.link(**MIDDLE))


def test_the_first_view(default):
    race, page = default, default.page
    assert page.title() == "Driftscope"
    assert "?" in page.locator("[data-question]").inner_text()
    race.ready()
    assert not any(race.enabled(name) for name in ("pause", "step", "resume", "stop"))
    race.planned("64 steps / 4 blocks = 16 per block")
    race.planned("between 4 and 64 forwards")
    race.planned("the worked answer has 49 tokens, rounded up to blocks of 16")
    if not RECORDED:
        assert race.state == "empty"
        pytest.skip("no example is recorded")
    assert race.state == "example"
    assert race.shown("a") == race.shown("b") == 64
    assert "times as fast" in race.text("[data-headline]")


SAMPLER = """() => {
  window.sampled = [];
  const count = lane => document.querySelectorAll(
    '[data-lane=' + lane + '] .ds-cell:not(.ds-mask)').length;
  const held = () => !!document.querySelector('#ds-stop:not([disabled])')
    && !!document.querySelector('#ds-run[disabled]');
  const sample = () => window.sampled.push([count('a'), count('b'), held()]);
  setInterval(sample, 30);
  new MutationObserver(sample).observe(
    document.body, { subtree: true, attributes: true, attributeFilter: ['disabled'] });
}"""


def test_the_default_race(default):
    race = default
    race.press("run")
    race.wait_state("running", *FINAL)
    race.wait_state("done")
    assert race.shown("a") == race.shown("b") == 64
    ratio = r"[\d.]+ times as fast"
    headline = race.text("[data-headline]")
    assert re.search(rf"Lane B is (slower: )?{ratio}; up to the end of the text {ratio}$", headline)
    chips = race.text("[data-chips]")
    assert re.search(r"\d+ forwards instead of 64", chips)
    assert re.search(r"\d+ instead of \d+ up to the end of the text", chips)
    assert "right" in race.text("[data-chips]")
    race.ready()


def test_the_text_is_the_one_of_the_api(app, viewer):
    viewer.finish()
    shape = {"prompt": PROMPT, "gen_length": 32, "block_length": 16}
    fast = {"unmasker": "threshold", "cache": "dual", "threshold.threshold": 0.9}
    race = {"a": shape | {"steps": 32}, "b": shape | fast}
    lanes = program(app.url).predict(race, api_name="/run")["lanes"]
    for lane in "ab":
        shown = viewer.page.locator(f"[data-lane={lane}] [data-answer]").text_content()
        assert shown == lanes[lane]["text"].lstrip()


def test_stop_holds_and_a_closed_tab_frees_the_engine(app, new_page):
    """A race stops within a step; the page begins another, is left, and the next visitor's ends."""
    race = new_page().open(app.link(**MIDDLE))
    race.page.evaluate(SAMPLER)
    race.press("run")
    race.wait_steps(20)
    race.press("stop")
    before = race.shown("a")
    race.wait_state("stopped")
    race.page.locator("[data-lane=a] [data-pill]", has_text="stopped at step").wait_for()
    after = race.shown("a")
    assert before <= after < 256
    frames = race.page.evaluate("window.sampled")
    frames = frames[next(i for i, frame in enumerate(frames) if max(frame[:2]) < 64) :]
    for lane in (0, 1):
        counts = [frame[lane] for frame in frames]
        assert counts == sorted(counts)
        assert len(set(counts)) >= 3
    assert any(held for _, _, held in frames)
    time.sleep(0.5)
    assert race.shown("a") == after
    race.press("run")
    race.wait_state("running")
    left = race.data("run")
    assert left
    race.page.close()
    shape = {"prompt": PROMPT, "gen_length": 16, "block_length": 16, "steps": 8}
    lanes = program(app.url).predict({"a": shape, "b": shape}, api_name="/run")["lanes"]
    assert lanes["a"]["text"]
    with pytest.raises(AppError, match="no longer in memory"):  # one that had gone on would be kept
        program(app.url).predict(left, "a", "frame", api_name="/trace")


def test_pause_step_resume(middle):
    race = middle
    race.pause_at(3)

    def steps():
        return int(race.data("frame-a")) + int(race.data("frame-b"))

    race.page.wait_for_selector("#ds-step:not([disabled])")
    held = steps()
    time.sleep(0.6)
    assert steps() == held
    race.press("step")
    race.page.wait_for_function(
        "n => { const d = document.querySelector('#ds-race .ds').dataset;"
        " return +d.frameA + +d.frameB > n; }",
        arg=held,
    )
    time.sleep(0.4)
    assert steps() == held + 1
    race.press("resume")
    race.page.wait_for_function(
        "n => +document.querySelector('#ds-race .ds').dataset.frameA > n + 5",
        arg=int(race.data("frame-a")),
    )
    race.press("stop")
    race.wait_state("stopped")


def test_a_token_pinned_during_a_run_is_marked_and_a_second_click_unpins_it(middle):
    race = middle
    race.pause_at(3)
    cell = race.page.locator("#ds-race [data-lane=a] .ds-cell").nth(2)
    pinned = race.page.locator("#ds-race .ds-pinned")
    cell.click()
    pinned.wait_for()
    assert cell.evaluate("cell => cell.matches('.ds-pinned')")
    cell.click()
    pinned.wait_for(state="detached")
    race.press("stop")
    race.wait_state("stopped")


LOSSY = """() => {
  const parse = window.parseAll = JSON.parse;
  let count = 0;
  JSON.parse = (text, ...more) => {
    const news = parse(text, ...more);
    if (news && news.lanes && news.reset === false && Object.keys(news.lanes).length) {
      count += 1;
      if (count % 4 === 1) news.lanes = {};
    }
    return news;
  };
}"""


def without_news(route):
    """Answer a question for new steps with none, so that only the messages bring them."""
    if '"news"' in route.request.post_data:
        route.fulfill(json='{"run":null,"state":"empty","lanes":{}}')
    else:
        route.continue_()


def test_lost_messages_are_asked_for(viewer):
    viewer.page.evaluate(LOSSY)
    viewer.page.route("**/component_server/", without_news)
    with viewer.page.expect_request(lambda one: '"replay"' in (one.post_data or "")):
        viewer.press("run")
    viewer.over()
    viewer.page.unroute_all()
    viewer.page.evaluate("JSON.parse = window.parseAll")
    assert viewer.state == "done"
    assert viewer.shown("a") == viewer.shown("b") == 32
