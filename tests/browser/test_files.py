"""The replay file, the recorded runs and links to a cursor, in a real headless Chromium."""

import numpy as np
import pytest

from engine.core import drift_codes
from engine.core.files import ASSETS
from engine.trace.trace import Trace
from inspector.files.replay import replay_page
from inspector.run_store import RaceRecord
from tests.browser.test_settings import exported
from tests.browser.test_views import cividis, pixel
from tests.support.chromium import RacePage, Watch
from tests.support.looking import cell_colour, show, show_at

pytest_plugins = ["tests.support.chromium"]
pytestmark = pytest.mark.browser

METHODS = ASSETS / "examples" / "methods"
HOSTILE = "</script><img src=x onerror=window.hit=1><!--<script>${window.hit=2}\u202eabc\u2028`"
LANES = {"a": "plain", "b": "threshold"}
CURSOR = ("lane", "view", "step", "layer", "position")


@pytest.fixture
def from_disk(browser):
    """Open a file; at the end nothing may have failed, nor anything been asked for."""
    opened = []

    def make(path, **options):
        context = browser.new_context(viewport={"width": 1280, "height": 900}, **options)
        watch, page = Watch(), context.new_page()
        watch.attach(page)
        opened.append((context, watch, path))
        page.goto(path.as_uri())
        return RacePage(page, watch)

    yield make
    for context, watch, path in opened:
        context.close()
        assert watch.errors == []
        assert watch.requests == [path.as_uri()]


@pytest.fixture(scope="module")
def served(app, lasting_page):
    """A page on which each test shows a recorded run of the app's."""
    race = lasting_page().open(f"{app.url}/?__theme=light")
    race.settled()  # a list that is opened before Gradio has written its fields may close again
    return race


def choose(race, title, name):
    """Show a recorded run of the app's, if it is not shown."""
    shown = "name => document.querySelector('[data-view-link-field]').value.includes(name)"
    part = f"recorded={name}"
    if not race.page.evaluate(shown, part):
        race.page.locator("#ds-recorded input").click()
        race.page.get_by_role("option", name=title, exact=True).click()
    race.page.wait_for_function(shown, arg=part)


def drift_cell(trace):
    """A row and layer whose drift of V is in the middle of the scale, at the last step."""
    codes = trace.arrays()["drift"][trace.steps - 1, :, 1].astype(int)
    value = np.where(
        codes == drift_codes.NOT_EVALUATED, 0, drift_codes.decode(codes.astype(np.uint8))
    )
    layer, position = np.unravel_index(np.nan_to_num(value).argmax(), value.shape)
    return int(layer), int(position), float(value[layer, position])


def test_the_replay_file_shows_what_the_page_shows(served, from_disk, tmp_path):
    choose(served, "Fast-dLLM dual cache", "dual")
    show(served, "drift")
    (path,) = exported(served, tmp_path, "replay")
    trace = Trace.load(METHODS / "plain.npz")
    layer, position, value = drift_cell(trace)
    colour = cividis(min(max((np.log10(value) + 4) / 4, 0), 1))
    replayed = from_disk(path, color_scheme="light")
    for race in (served, replayed):
        show_at(race, "drift", "a", layer, trace.steps - 1)
        got = cell_colour(race, "drift-layers", position, layer)
        assert all(abs(a - b) <= 2 for a, b in zip(got, colour, strict=True))
    step = int(trace.step_map()[trace.arrays()["prompt_mask"].sum() + 5])
    one, other = (pixel(race.page, "a", 5, step) for race in (served, replayed))
    assert one == other
    assert one != pixel(replayed.page, "a", 5, (step + 32) % 64)
    assert replayed.text("[data-lane=b] .ds-answer") == served.text("[data-lane=b] .ds-answer")
    for hidden in ("[data-record=probe]", "[data-back]"):
        assert not replayed.page.locator(f"#ds-race {hidden}").first.is_visible()


def test_the_replay_file_replays_in_its_own_theme(from_disk, tmp_path):
    record = RaceRecord(state="done")
    record.traces = {lane: Trace.load(METHODS / f"{name}.npz") for lane, name in LANES.items()}
    path = tmp_path / "replay.html"
    path.write_text(replay_page(record, str), "utf-8")
    race = from_disk(path, color_scheme="dark")
    bar = race.page.locator("[data-scrub]")
    bar.focus()
    race.page.keyboard.press("Home")
    assert race.shown("a") == 0
    for _ in range(3):
        race.page.keyboard.press("ArrowRight")
    assert race.data("frame-a") == "3"
    assert race.shown("a") == 3
    race.page.keyboard.press("End")
    assert race.shown("a") == 64
    paper = race.page.locator(".ds-lane-a").evaluate(
        "node => getComputedStyle(node).backgroundColor"
    )
    assert paper == "rgb(24, 32, 44)"
    show(race, "candidates")
    assert race.page.locator("#ds-race [data-branch]:visible").count() == 0
    race.page.locator("#ds-race [data-numbers] summary").click()
    race.page.locator("#ds-race [data-run-card]", has_text="python -m engine repeat").wait_for()


@pytest.mark.parametrize(
    ("rule", "said"),
    [("official", False), ("fill_safe", True)],
)
def test_a_race_of_unequal_end_of_text_rules_says_so(from_disk, tmp_path, rule, said):
    record = RaceRecord(state="done")
    for lane in "ab":
        record.traces[lane] = trace = Trace.load(ASSETS / "examples" / f"{lane}.npz")
        trace.meta["spec"] |= {"eos": rule if lane == "b" else "official"}
    path = tmp_path / "replay.html"
    path.write_text(replay_page(record, str), "utf-8")
    headline = from_disk(path).text("[data-headline]")
    assert "up to the end of the text" in headline
    unequal = ". Unequal end-of-text rules: A official, B fill_safe"
    assert headline.endswith(unequal) == said
    assert ("Unequal" in headline) == said


def test_hostile_text_in_a_replay_file_is_only_text(from_disk, tmp_path):
    trace = Trace.load(METHODS / "threshold.npz")
    trace._pieces = {i: HOSTILE.encode() for i in trace.pieces}
    trace.meta["texts"] = [HOSTILE]
    trace.meta["environment"]["device_name"] = HOSTILE
    path = tmp_path / "replay.html"
    page = replay_page(RaceRecord(state="done", traces={"a": trace}), lambda spec: HOSTILE)
    path.write_text(page, "utf-8")
    race = from_disk(path)
    show(race, "candidates")
    assert "<img src=x" in race.text("[data-lane=a] h2")
    assert "<img src=x" in race.text("[data-lane=a] .ds-cell >> nth=0")
    answer = race.page.locator("#ds-race [data-lane=a] .ds-answer").text_content()
    assert "\u202e" not in answer
    assert "⟨U+202E⟩abc" in answer
    assert race.page.evaluate("() => window.hit ?? null") is None
    assert race.page.locator("img").count() == 0
    assert race.page.evaluate("() => document.documentElement.scrollWidth <= innerWidth")


def test_a_narrow_replay_file_moves_up_and_down_only(from_disk, tmp_path):
    record = RaceRecord(state="done")
    record.traces = {lane: Trace.load(METHODS / f"{name}.npz") for lane, name in LANES.items()}
    path = tmp_path / "replay.html"
    path.write_text(replay_page(record, str), "utf-8")
    race = from_disk(path)
    race.page.set_viewport_size({"width": 360, "height": 800})
    show(race, "compare")
    empty = race.page.locator("#ds-race [data-tab].ds-empty")
    assert empty.last.evaluate("tab => tab.getBoundingClientRect().right > innerWidth")
    assert race.page.evaluate("() => document.documentElement.scrollWidth <= innerWidth")


def where(race):
    node = race.page.locator("#ds-race [data-inspect]")
    return {name: node.get_attribute(f"data-{name}") for name in CURSOR}


def test_a_link_whose_plan_is_refused_does_not_say_press_run(app, new_page):
    race = new_page().open(app.link(prompt="", gen_length="16", **{"a.steps": "8"}))
    note = race.page.locator("[data-linked]")
    note.get_by_text("they cannot be run: the plan says why").wait_for()
    assert race.page.locator("[data-linked-key]").is_hidden()
    race.settings()
    race.page.locator("#ds-prompt textarea").fill("How much is 2 + 2?")
    note.get_by_text("Press Run to see their race").wait_for()
    race.page.locator("[data-linked-key]:not([disabled])").click()
    race.over()
    race.wait_state("done")


def test_a_link_brings_the_cursor_and_the_view_back(served, new_page):
    first = served
    choose(first, "Fast-dLLM dual cache", "dual")
    show(first, "drift")
    first.page.locator("#ds-race [data-inspect-lane-b]").click()
    layers = first.page.locator("#ds-race [data-figure=drift-layers] canvas")
    layers.click(position={"x": 300, "y": 100})
    first.page.locator("#ds-race [data-inspect-step]").fill("4")
    show(first, "counts")
    first.page.locator("#ds-race .ds-view[data-view=counts] [data-control=quantity]").select_option(
        "k"
    )
    first.page.locator("[data-align]").select_option("step")
    link = first.page.locator("[data-view-link-field]").input_value()
    set_ = where(first)
    assert set_["lane"] == "b"
    assert set_["step"] == "4"
    numbers = [str(int(set_[name]) + 1) for name in ("step", "layer", "position")]
    assert f"cursor=b.{'.'.join(numbers)}&" in link
    second = new_page().open(link)
    second.page.locator("#ds-race [data-inspect][data-ready=counts]").wait_for()
    second.page.locator("#ds-race [data-inspect][data-lane=b][data-step='4']").wait_for()
    assert where(second) == set_
    assert second.data("frame-b") == "5"
    assert (
        second.page.locator(
            "#ds-race .ds-view[data-view=counts] [data-control=quantity]"
        ).input_value()
        == "k"
    )
    assert second.page.locator("#ds-race [data-align]").input_value() == "step"
    second.page.wait_for_function(
        "link => document.querySelector('[data-view-link-field]').value === link", arg=link
    )
    assert second.page.locator("[data-linked]").is_hidden()


def test_a_link_to_a_recorded_run_shows_it_with_the_choice_that_needs_data(served, new_page):
    first = served
    choose(first, "dLLM-Cache", "dllm_cache")
    show(first, "similarity")
    group = first.page.locator("#ds-race .ds-view[data-view=similarity] [data-control=group]")
    group.select_option(index=1)
    first.page.locator("#ds-race .ds-view[data-view=similarity] [data-control=kind]").select_option(
        "k"
    )
    link = first.page.locator("[data-view-link-field]").input_value()
    second = new_page().open(link)
    second.page.locator("#ds-race [data-inspect][data-ready=similarity]").wait_for()
    second.page.wait_for_function(
        "link => document.querySelector('[data-view-link-field]').value === link", arg=link
    )
    chosen = "#ds-race .ds-view[data-view=similarity] [data-control=group]"
    assert second.page.locator(chosen).input_value() == group.input_value() == "1"


def test_a_link_to_a_branch_says_what_to_press_and_restores_it(app, new_page):
    race = new_page().open(
        app.link(
            branch="a.5", look="schedule", cursor="b.3.2", gen_length="16", **{"a.steps": "16"}
        )
    )
    note = race.page.locator("[data-linked]")
    note.get_by_text("Press Run;").wait_for()
    note.get_by_role("button", name="Run", exact=True).click()
    note.get_by_text("before step 5 of lane A. Press Branch").wait_for()
    race.over()
    note.get_by_role("button", name="Branch", exact=True).click()
    race.page.locator("#ds-race [data-parent]").wait_for()
    note.get_by_text("needs a recording").wait_for()
    race.over()
    race.page.locator(
        "#ds-race [data-inspect][data-lane=b][data-step='2'][data-layer='1']"
    ).wait_for()
    assert "branch=a.5" in race.page.locator("[data-view-link-field]").input_value()
    assert race.page.locator("#ds-race [data-inspect]").get_attribute("data-view") == "schedule"


def test_an_odd_cursor_changes_nothing(app, new_page):
    """One that no step has; how a link is read is tested in `link.test.ts`."""
    race = new_page().open(f"{app.url}/?cursor=b.999.1.1&look=__proto__")
    show(race, "drift")
    race.page.locator("#ds-race [data-inspect][data-step='6'][data-position='']").wait_for()
    assert where(race) == {
        "lane": "b",
        "view": "drift",
        "step": "6",
        "layer": "4",
        "position": "",
    }
    assert not race.page.locator("#ds-race [data-note]").is_visible()
