"""The page for everyone: axe-core on every tab, and a whole lesson by keyboard alone."""

import pytest

from engine.trace.trace import Trace
from tests.support.axe import findings
from tests.support.browser import ROOT
from tests.support.looking import bring, recolour, show

pytest_plugins = ["tests.support.chromium"]
pytestmark = pytest.mark.browser
LESSONS = ROOT / "assets" / "examples" / "lessons"
PLANTED = """() => {
  const box = document.createElement('div');
  box.id = 'planted';
  box.innerHTML = '<button></button><p style="color: #aaa; background: #fff">pale words</p>' +
    '<button style="width: 9px; height: 9px; padding: 0" aria-label="one"></button>' +
    '<button style="width: 9px; height: 9px; padding: 0" aria-label="two"></button>';
  document.querySelector('#ds-title').append(box);
}"""
WATCH = """() => {
  window.fallen = [];
  const look = () => {
    if (document.hasFocus() && document.activeElement === document.body) window.fallen.push(
      document.querySelector('#ds-race .ds')?.dataset.state);
    requestAnimationFrame(look);
  };
  look();
}"""
EDGES = """x => {
  const canvas = document.querySelector('#ds-race [data-figure=compare-strip] canvas');
  const [left, top, right, bottom] = canvas.dataset.box.split(',').map(Number);
  const [wide] = canvas.dataset.cells.split(',').map(Number);
  const at = left + (x + 0.5) * (right - left) / wide, pen = canvas.getContext('2d');
  const ink = (y) =>
    [...pen.getImageData(at, y, 1, 1).data.slice(0, 3)].every((c) => c < 30 || c > 250);
  return [ink(top + 4.5), ink((top + bottom) / 2 - 1.5)];
}"""
FOCUS = """() => {
  const it = document.activeElement, style = getComputedStyle(it);
  const names = Object.keys(it.dataset).join(' ');
  return [it.id + ' ' + names + ' ' + (it.ariaLabel || it.innerText || ''),
    style.outlineStyle === 'solid' && parseFloat(style.outlineWidth) >= 2];
}"""
# Whether the page leaves a key to the browser.
LEFT_ALONE = """([selector, key, held]) => document.querySelector('#ds-race ' + selector)
  .dispatchEvent(new KeyboardEvent('keydown', {
    key, [held]: true, bubbles: true, cancelable: true,
  }))"""


LOOKS = ((1440, False), (390, True))


def looked(page, contrast=True):
    """What axe-core finds wide and light, and narrow and dark."""
    for width, dark in LOOKS:
        page.set_viewport_size({"width": width, "height": 900})
        recolour(page, dark)
        yield findings(page, contrast=contrast)


@pytest.fixture(scope="module")
def own(app, lasting_page):
    """A page with the settings of a short race."""
    link = app.link(gen_length="16", **{"a.steps": "8"})
    return lasting_page(reduced_motion="reduce").open(link)


@pytest.fixture
def laid_open(own):
    """The page after a race, with all that opens on the first tab; it is left as it was."""
    own.finish()
    for name in ("settings", "files"):
        own.page.locator(f"#ds-{name} > button").click()
    own.page.locator("#ds-export").wait_for()
    own.settled()
    yield own
    own.page.set_viewport_size({"width": 1280, "height": 900})
    recolour(own.page, False)
    own.page.get_by_role("tab", name="Run", exact=True).click()
    for name in ("settings", "files"):
        own.page.locator(f"#ds-{name} > button").click()


def test_axe_finds_nothing_grave_on_any_tab(laid_open):
    race, page = laid_open, laid_open.page
    assert list(looked(page)) == [[], []]
    for tab, ready in (
        ("Learn", "[data-lesson-title]:not(:empty)"),
        ("Methods", "[data-method-title]:not(:empty)"),
    ):
        page.get_by_role("tab", name=tab, exact=True).click()
        page.locator(ready).first.wait_for()
        race.settled()
        # The contrast of the methods' texts is tested in `test_methods.py`.
        assert list(looked(page, contrast=tab != "Methods")) == [[], []]


@pytest.fixture
def planted(own):
    """The page with faults on it, which are taken away in the end."""
    own.page.evaluate(PLANTED)
    yield own.page
    own.page.evaluate("document.querySelector('#planted').remove()")


def test_axe_finds_what_is_planted(planted):
    found = " ".join(findings(planted, "#ds-title"))
    for rule in ("button-name", "color-contrast", "target-size"):
        assert rule in found
    assert findings(planted, ".ds-title") == []


def test_a_focus_that_is_lost_or_unseen_is_noticed(planted):
    page = planted
    button = page.locator("#planted button").first
    page.keyboard.press("Shift")  # a focus after the mouse is not marked
    button.focus()
    page.evaluate(WATCH)
    assert page.evaluate(FOCUS)[1]
    button.evaluate("e => e.style.setProperty('outline', 'none', 'important')")
    assert not page.evaluate(FOCUS)[1]
    assert page.evaluate("window.fallen.length") == 0
    button.evaluate("e => e.remove()")
    page.wait_for_function("window.fallen.length")


class Keys:
    """A page that is touched by keys alone; the focus must be seen wherever it comes to."""

    def __init__(self, page):
        self.page = page

    def to(self, name, back=False, most=60):
        """Press Tab (with Shift: `back`) until the focus is on what bears the name."""
        for _ in range(most):
            self.page.keyboard.press("Shift+Tab" if back else "Tab")
            where, seen = self.page.evaluate(FOCUS)
            assert seen, f"no focus is seen on {where}"
            if name in where:
                return where
        raise AssertionError(f"{name} is not reached; the focus is on {where}")

    def press(self, *names):
        """Press keys where the focus is."""
        for name in names:
            self.page.keyboard.press(name)


@pytest.fixture(scope="module")
def first(app, lasting_page):
    """A page as it opens, on a small screen in forced colours."""
    return lasting_page(360, 450, reduced_motion="reduce", forced_colors="active").open(app.url)


def test_it_is_told_and_named_for_all(first):
    page = first.page
    assert page.evaluate("[document.documentElement.lang, document.title]") == ["en", "Driftscope"]
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    levels = page.evaluate(
        "[...document.querySelectorAll('h1,h2,h3,h4')].map((e) => +e.tagName[1])"
    )
    assert levels[0] == 1
    assert max(levels) == 2
    spoken = page.locator("#ds-race [data-spoken]").inner_text()
    assert spoken.startswith("Recorded example. Lane B is ")
    live = page.evaluate(
        "[...document.querySelectorAll('output')].filter((e) => e.ariaLive !== 'off').length"
    )
    assert live == 0, "an output is read aloud each time it changes, unless told otherwise"
    chosen = page.locator("#ds-tabs [role=tab][aria-selected=true]").first
    assert chosen.evaluate("e => getComputedStyle(e).backgroundColor") != page.locator(
        "#ds-tabs [role=tab][aria-selected=false]"
    ).first.evaluate("e => getComputedStyle(e).backgroundColor")


def test_a_lesson_by_keyboard_alone(first):
    page, keys = first.page, Keys(first.page)
    page.set_viewport_size({"width": 1280, "height": 900})
    page.emulate_media(forced_colors="none")
    first.settled()
    page.evaluate(WATCH)
    keys.to("Learn")
    page.evaluate("window.fallen = []")
    keys.press("Enter")
    page.locator("[data-lesson-title]:not(:empty)").wait_for()
    keys.to("From masks to text")
    keys.press("Enter")
    assert "From masks to text" in page.evaluate(FOCUS)[0]
    page.locator("#ds-learn [data-ready=candidates]").wait_for()
    keys.to("scrub")
    keys.press("Home", "ArrowRight", "Shift+ArrowRight", "End")
    done = "document.querySelector('#ds-learn [data-learn]').dataset.done === 'yes'"
    page.wait_for_function(done)
    keys.to("Probability of the most likely token")
    keys.press("ArrowLeft", "ArrowUp")
    said = page.locator("#ds-learn [data-figure=candidates] .ds-words")
    said.get_by_text("step").wait_for()
    trace = Trace.load(LESSONS / "plain.npz")
    answer = trace.step_map()[~trace.arrays()["prompt_mask"]]
    ends = trace.canvas_at(trace.steps)[~trace.arrays()["prompt_mask"]]
    stops = set(trace.meta["model"]["stop_ids"])
    end = next(i for i, token in enumerate(ends.tolist()) if token in stops)
    keys.to("lessonNumber", back=True)
    page.keyboard.type(str(int(answer[:end].argmax()) + 1))
    keys.press("Enter")
    verdict = page.locator("[data-lesson-verdict]")
    verdict.get_by_text("Right.").wait_for()
    keys.to("lessonNext")
    keys.press(" ")
    page.locator("#ds-learn [data-lesson=attention]").wait_for()
    assert "no ordinary KV cache" in page.evaluate(FOCUS)[0]
    page.locator("#ds-learn [data-ready=drift]").wait_for()
    keys.to("Link to this lesson")
    assert page.evaluate("window.fallen") == []


def test_the_focus_stays_through_a_run(own):
    page = own.page
    own.settled()
    page.locator("#ds-run").focus()
    page.evaluate(WATCH)
    page.keyboard.press("Enter")
    own.over()
    page.wait_for_function("document.activeElement.id === 'ds-run'")
    key = page.locator("#ds-race [data-record=layers]")
    key.focus()
    page.keyboard.press("Enter")
    own.over()
    page.wait_for_function("document.activeElement.dataset.record === 'layers'")
    show(own, "time")
    chart = page.locator("#ds-race [data-figure=time-sum] [data-box]")
    chart.wait_for()
    chart.focus()
    for name in ("Home", "ArrowRight"):
        page.keyboard.press(name)
    said = page.locator("#ds-race [data-figure=time-sum] .ds-words")
    said.get_by_text("after step 2:").wait_for()
    assert page.evaluate("window.fallen") == []
    field = page.locator("#ds-recorded input")
    field.focus()
    for name in ("ArrowDown", "ArrowDown", "Enter"):
        page.keyboard.press(name)
    own.wait_state("example")
    page.wait_for_function("document.activeElement.ariaExpanded === 'false'")
    assert field.evaluate("e => e === document.activeElement")
    page.keyboard.press("Tab")
    assert page.evaluate("'play' in document.activeElement.dataset")


def test_the_sign_of_a_difference_is_drawn_as_well_as_coloured(viewer, tmp_path):
    race = viewer
    lanes = {lane: Trace.load(LESSONS.parent / f"{lane}.npz") for lane in "ab"}
    maps = [t.step_map()[~t.arrays()["prompt_mask"]] for t in lanes.values()]
    later = int((maps[1] - maps[0]).argmin())
    assert maps[1][later] < maps[0][later] - 9
    bring(race, lanes, tmp_path)
    show(race, "compare")
    assert race.page.evaluate(EDGES, later) == [True, False]
    bring(race, {"a": lanes["b"], "b": lanes["a"]}, tmp_path)
    show(race, "compare")
    assert race.page.evaluate(EDGES, later) == [False, True]


def test_keys_held_with_alt_or_cmd_stay_the_browsers(viewer, tmp_path):
    """Alt and an arrow, or Cmd and a bracket, go back to the page before."""
    example = LESSONS.parent
    bring(viewer, {n: Trace.load(example / f"{n}-recorded.npz") for n in "ab"}, tmp_path)
    show(viewer, "schedule")

    def left(*given):
        return viewer.page.evaluate(LEFT_ALONE, given)

    for selector in (
        "[data-scrub]",
        "[data-lane=b] [data-grid]",
        "[data-tab=schedule]",
        "[data-figure=schedule-layers] canvas",
        "[data-figure=schedule-running] svg[data-box]",
    ):
        assert left(selector, "ArrowLeft", "altKey"), selector
        assert not left(selector, "ArrowLeft", "shiftKey"), selector
    assert left("[data-inspect-layer]", "[", "metaKey")
    assert not left("[data-inspect-layer]", "[", "ctrlKey"), "as AltGr is on some keyboards"
