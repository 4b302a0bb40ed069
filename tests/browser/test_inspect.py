"""The bundled example: exact colours, one cursor, no requests, every width, and the weight."""

import numpy as np
import pytest

from engine.trace.trace import Trace
from tests.browser.test_views import cividis
from tests.support.browser import ROOT
from tests.support.looking import cell_colour, drawn, illegible, inks, recolour, show

pytest_plugins = ["tests.support.chromium"]
pytestmark = pytest.mark.browser
EXAMPLES = ROOT / "assets" / "examples"
LAYER, V = 4, 1


@pytest.fixture(scope="module")
def golden():
    return Trace.load(EXAMPLES / "b-recorded.npz")


@pytest.fixture(scope="module")
def weights():
    """Bytes of each part of the page, noted when `crisp` is loaded."""
    return []


@pytest.fixture(scope="module")
def crisp(app, lasting_page, weights):
    """The example three times as fine, on a page that had nothing in its cache."""
    race, parts = lasting_page(1440, device_scale_factor=3), []

    def note(request):
        if request.resource_type in ("document", "script", "stylesheet", "font"):
            parts.append(request)

    race.page.on("requestfinished", note)
    race.open(f"{app.url}/?__theme=light")
    race.page.remove_listener("requestfinished", note)
    weights.extend(request.sizes()["responseBodySize"] for request in parts)
    return race


@pytest.fixture(scope="module")
def own(app, lasting_page):
    """A page that has run a short race."""
    race = lasting_page(1440).open(app.link(gen_length="16", **{"a.steps": "8"}))
    race.finish()
    return race


def cursor(page):
    return page.locator("#ds-race [data-inspect]").evaluate(
        "e => [e.dataset.lane, +e.dataset.step, +e.dataset.layer, e.dataset.position]"
    )


def colour_of(code):
    """The colour of a drift code: cividis over four decades of 1 - cosine."""
    drift = 1e-3 * np.expm1(code / 254 * np.log1p(2e3))
    return cividis(min(max((np.log10(max(drift, 1e-12)) + 4) / 4, 0), 1))


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_cells_have_the_colour_of_their_number(crisp, golden, theme):
    race, page = crisp, crisp.page
    recolour(page, theme == "dark")
    show(race, "drift")
    page.locator("#ds-race [data-inspect-lane-b]").click()
    page.locator("#ds-race [data-inspect-step]").fill("0")
    page.locator("#ds-race [data-inspect-layer]").fill(str(LAYER))
    codes = golden.arrays()["drift"][:, LAYER, V]
    shown, unmasked = np.argwhere(codes != 255), golden.step_map()
    dots, prompt = np.argwhere(unmasked >= 0)[:, 0], int(golden.arrays()["prompt_mask"].sum())
    clear = [
        (s, x)
        for s, x in shown.tolist()
        if s > 1
        and 4 < (x - prompt) % 32 < 28
        and not ((abs(dots - x) < 6) & (abs(unmasked[dots] - s) < 2)).any()
    ]
    loud = sorted(clear, key=lambda cell: codes[cell[0], cell[1]])
    for step, position in (loud[-1], loud[len(loud) // 2], loud[0]):
        got = cell_colour(race, "drift-steps", position, step)
        want = colour_of(int(codes[step, position]))
        close = all(abs(a - b) <= 2 for a, b in zip(got, want, strict=True))
        assert close, (step, position, got, want)
    paper = (255, 255, 255) if theme == "light" else (24, 32, 44)
    blank = [(s, x) for s, x in np.argwhere(codes == 255).tolist() if s > 1]
    hatch = {tuple(cell_colour(race, "drift-steps", x, s)) for s, x in blank[: 40 * 7 : 7]}
    assert paper in hatch
    assert len(hatch) > 1, "no data is hatched, not a plain colour"


@pytest.mark.usefixtures("crisp")
def test_what_the_page_weighs(weights, record_property):
    record_property("page weight", sum(weights))
    record_property("requests", len(weights))
    assert 0 < sum(weights) < 700_000


def test_one_cursor_moves_everything_and_asks_only_for_slices(example, golden):
    race, page = example, example.page
    show(race, "schedule")
    show(race, "drift")
    page.locator("#ds-race [data-inspect-lane-b]").click()
    race.quiet()
    asked = len(race.watch.requests)
    drawn(race)
    step = page.locator("#ds-race [data-inspect-step]")
    step.focus()
    page.keyboard.press("Home")
    for _ in range(12):
        page.keyboard.press("ArrowRight")
    assert cursor(page)[:2] == ["b", 12]
    assert race.data("frame-b") == "13"
    page.keyboard.press("]")
    drawn(race)
    canvas = page.locator('#ds-race [data-figure="drift-steps"] canvas')
    canvas.press("Home")
    before = cursor(page)
    for key in ("ArrowRight", "Shift+ArrowRight", "ArrowDown"):
        page.keyboard.press(key)
    page.keyboard.press("Enter")
    lane, now, layer, position = cursor(page)
    assert (lane, layer) == ("b", before[2])
    assert now == before[1] + 1
    assert position == "11"
    code = golden.arrays()["drift"][now, layer, V, 11]
    drawn(race)
    said = page.locator('#ds-race [data-figure="drift-steps"] .ds-words').inner_text()
    drift = 1e-3 * np.expm1(float(code) / 254 * np.log1p(2e3))
    value = "not evaluated" if code == 255 else "below" if drift < 1e-4 else f"{drift:.2g}"
    assert "Position 12, " in said
    assert value in said
    assert page.locator("#ds-race [data-inspect-card]").is_visible()
    page.locator("#ds-race [data-tab=schedule]").click()
    assert cursor(page)[3] == "11"
    page.keyboard.press("Escape")
    assert page.locator("#ds-race [data-inspect-card]").is_hidden()
    assert all("/driftscope/slice?" in url for url in race.watch.requests[asked:])


@pytest.mark.parametrize(("width", "theme"), [(390, "dark"), (768, "light"), (1440, "dark")])
def test_every_view_fits_reads_and_has_names(example, width, theme):
    race, page = example, example.page
    page.set_viewport_size({"width": width, "height": 900})
    recolour(page, theme == "dark")
    show(race, "drift")
    page.locator("#ds-race [data-inspect-lane-b]").click()
    for tab in page.locator("#ds-race [data-tab]").all():
        show(race, tab.get_attribute("data-tab"))
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
        nameless = page.evaluate(
            """() => [...document.querySelector('#ds-race [data-inspect]')
              .querySelectorAll('button,input,select,canvas[role],svg[tabindex],a')]
              .filter((e) => e.checkVisibility())
              .filter((e) => !(e.innerText || e.ariaLabel || (e.labels || []).length))
              .map((e) => e.outerHTML.slice(0, 100))"""
        )
        assert nameless == []
        found = inks(page, "#ds-race [data-inspect] *", ":disabled, select", solid=True)
        assert illegible(found) == set()
    page.set_viewport_size({"width": 1440, "height": 900})
    recolour(page, False)


def test_a_recording_opens_the_views_and_keeps_the_times(own):
    race = own
    took, page = race.text("[data-lane=a] [data-stats]"), race.page
    headline = race.text("[data-headline]")
    page.locator('#ds-race [data-tab="error"]').click()
    page.locator("#ds-race .ds-view[data-view=error] .ds-note", has_text="Press Record").wait_for()
    page.locator('#ds-race [data-record="probe"]').click()
    page.wait_for_function(
        "document.querySelector('#ds-race [data-inspect]').dataset.ready === 'error'"
    )
    race.over()
    assert race.state == "done"
    assert race.text("[data-lane=a] [data-stats]") == took
    assert "Lane B is" in headline
    assert race.text("[data-headline]") == headline


EAGER = """name => {
  const key = document.querySelector(name);
  const held = [];
  window.again = 0;
  new MutationObserver((_, watch) => {
    held.push(key.disabled);
    if (key.disabled || !held.includes(true)) return;
    window.again = 1;
    watch.disconnect();
    key.click();
  }).observe(key, { attributeFilter: ['disabled'] });
}"""


@pytest.mark.parametrize(("name", "asks"), [("#ds-run", 2), ("#ds-race [data-record=layers]", 1)])
def test_a_click_at_the_moment_a_button_comes_back_is_taken(own, name, asks):
    """A run asks twice: for itself, and for its recording if it is short."""
    before, page = own.begun, own.page
    page.evaluate(EAGER, name)
    page.locator(name).click()
    page.wait_for_function("window.again")
    own.over()
    assert own.begun == before + 2 * asks
    assert own.state == "done"


def test_many_runs_in_one_page(app, own):
    """Three runs after the first; `python -m tests.proofs.endurance` is the long version."""
    held, race, before = [], own, own.begun
    collector = race.page.context.new_cdp_session(race.page)
    for _ in range(4):
        race.finish()
        race.wait_state("done")
        collector.send("HeapProfiler.collectGarbage")
        counts = race.page.evaluate("[performance.memory.usedJSHeapSize, document.all.length]")
        held.append([*counts, app.held()])
    collector.detach()
    assert race.begun == before + 8, "each run and its recording"
    heap, nodes, server = zip(held[0], held[-1], strict=True)
    assert abs(nodes[1] - nodes[0]) < 14, "nodes pile up"
    assert heap[1] < heap[0] + 8e6, "the page's memory piles up"
    assert server[1] < server[0] + 16, "the server's memory piles up"


def test_the_reason_on_the_card_has_the_height_of_three_lines_while_it_is_read(example):
    example.page.locator("#ds-race [data-lane=b] .ds-cell").first.click()
    why = example.page.locator("#ds-race [data-inspect-card] .ds-why")
    why.wait_for()
    style = why.evaluate("node => [getComputedStyle(node)].map((s) => [s.minHeight, s.lineHeight])")
    least, line = (float(size.removesuffix("px")) for size in style[0])
    assert least >= 3 * line
