"""What the page draws: exact colours, replay, readouts, widths and names."""

import re

import pytest

from tests.support.looking import illegible, inks, recolour, show

pytest_plugins = ["tests.support.chromium"]
pytestmark = pytest.mark.browser


def cividis(value):
    anchors = [
        (0, 34, 78), (18, 53, 112), (59, 73, 108), (87, 93, 109), (112, 113, 115),
        (138, 134, 120), (165, 156, 116), (195, 179, 105), (225, 204, 85), (254, 232, 56),
    ]  # fmt: skip
    place = value * 9
    low = min(int(place), 8)
    pairs = zip(anchors[low], anchors[low + 1], strict=True)
    return [a + (b - a) * (place - low) for a, b in pairs]


def pixel(page, lane, token, step):
    """RGB of the map's cell of a token and step, both counted from 0."""
    script = """([lane, token, step]) => {
      const canvas = document.querySelector(`[data-chart=${lane}] canvas`);
      const [left, top, right, bottom] = canvas.dataset.box.split(',').map(Number);
      const [tokens, steps] = canvas.dataset.cells.split(',').map(Number);
      const x = left + (token + 0.5) * (right - left) / tokens;
      const y = top + (step + 0.5) * (bottom - top) / steps;
      const dense = canvas.width / canvas.clientWidth, pen = canvas.getContext('2d');
      return [...pen.getImageData(x * dense, y * dense, 1, 1).data.slice(0, 3)];
    }"""
    return page.evaluate(script, [lane, token, step])


@pytest.fixture(scope="module")
def asked():
    """Requests of the page in the run of `ran`, noted when it is run."""
    return []


@pytest.fixture(scope="module")
def ran(app, lasting_page, asked):
    """A page that shows a finished race, light though the machine prefers dark."""
    race = lasting_page(color_scheme="dark").open(app.link(__theme="light"))
    assert not race.page.evaluate("document.body.classList.contains('dark')")
    race.quiet()
    before = len(race.watch.requests)
    race.finish()
    asked.extend(race.watch.requests[before:])
    return race


@pytest.fixture(params=["light", "dark"])
def theme(ran, request):
    """Each theme in turn; the page is left light."""
    recolour(ran.page, request.param == "dark")
    yield request.param
    recolour(ran.page, False)


def test_the_map_shows_confidence_exactly(ran, theme):
    race = ran
    race.page.locator("[data-scrub]").press("End")
    race.page.locator("[data-lane=a] .ds-cell").nth(5).hover()
    read = race.text("[data-readout]")
    sure = float(re.search(r"confidence ([\d.]+)", read)[1])
    step = int(re.search(r"at step (\d+)", read)[1]) - 1
    assert read.startswith("A · token 6 ·")
    got = pixel(race.page, "a", 5, step)
    assert all(abs(x - y) <= 2 for x, y in zip(got, cividis(sure), strict=True))
    blank = pixel(race.page, "a", 5, (step + 16) % 32)
    assert blank == ([233, 237, 242] if theme == "light" else [34, 44, 58])
    shade = race.page.locator("[data-lane=a] .ds-settled").first.evaluate(
        "cell => getComputedStyle(cell).backgroundColor"
    )
    assert shade == ("rgb(214, 232, 245)" if theme == "light" else "rgb(27, 61, 87)")


def test_scrubbing_asks_the_server_nothing(ran):
    page, bar = ran.page, ran.page.locator("[data-scrub]")
    page.locator("[data-align]").select_option("step")
    ran.quiet()
    asked = len(ran.watch.requests)
    bar.focus()
    page.keyboard.press("Home")
    assert ran.shown("a") == 0
    seen = []
    for _ in range(20):
        page.keyboard.press("ArrowRight")
        seen.append(int(ran.data("frame-a")))
    assert seen == list(range(1, 21))
    page.keyboard.press("Shift+ArrowLeft")
    assert ran.data("frame-a") == "10"
    assert ran.shown("a") == 10
    assert page.locator("[data-lane=a] .ds-new").count() == 1
    page.keyboard.press("End")
    assert ran.shown("a") == 32
    page.keyboard.press(" ")
    page.wait_for_function("+document.querySelector('#ds-race .ds').dataset.frameA > 2")
    page.wait_for_function("document.querySelector('[data-play]').textContent.includes('Replay')")
    assert ran.shown("a") == 32
    assert len(ran.watch.requests) == asked


@pytest.mark.usefixtures("ran")
def test_a_run_ends_with_two_requests(asked):
    """The plan; then the list of models."""
    assert sum("/run/predict" in url for url in asked) == 2


def test_a_short_race_is_recorded_by_itself(ran):
    took = ran.text("[data-lane=a] [data-stats]")
    show(ran, "drift")
    assert ran.page.locator("#ds-race .ds-tab.ds-empty").evaluate_all(
        "tabs => tabs.map((tab) => tab.dataset.tab)"
    ) == ["experts", "error", "lens", "guider"]
    assert ran.text("[data-lane=a] [data-stats]") == took
    assert "times as fast" in ran.text("[data-headline]")


def test_alignment_pairs_the_lanes(ran):
    page, bar = ran.page, ran.page.locator("[data-scrub]")

    def halves(mode):
        page.locator("[data-align]").select_option(mode)
        bar.focus()
        page.keyboard.press("Home")
        for _ in range(10):
            page.keyboard.press("ArrowRight")
        return [int(ran.data(f"{what}-{lane}")) for what in ("frame", "shown") for lane in "ab"]

    ends = int(ran.data("frame-b"))
    assert halves("step")[:2] == [10, min(10, ends)]
    revealed = halves("tokens")
    assert max(revealed[2:]) <= 10
    frame_a, frame_b, *_ = halves("time")
    times = [ran.text(f"[data-lane={lane}] .ds-stats div:nth-child(3) dd") for lane in "ab"]
    ms = [float(t.split()[0]) * (1000 if t.endswith(" s") else 1) for t in times]
    where = ran.text("[data-where]").split(" of ")[0]
    now = float(where.split()[0]) * (1000 if where.endswith(" s") else 1)
    assert frame_a + frame_b == 10
    assert max(ms) == pytest.approx(now, rel=0.02)


def test_tokens_can_be_read_by_mouse_and_keys(ran):
    page = ran.page
    page.locator("[data-scrub]").press("End")
    page.locator("[data-lane=b] .ds-cell").nth(3).click()
    page.mouse.move(5, 5)
    pinned = ran.text("[data-readout]")
    assert pinned.startswith("B · token 4 ·")
    assert re.search(r"\(id \d+\) · confidence [\d.]+ · committed at step \d+", pinned)
    page.locator("[data-lane=a] [data-grid]").focus()
    for key in ("ArrowRight", "ArrowRight", "ArrowDown"):
        page.keyboard.press(key)
    assert ran.text("[data-readout]").startswith("A · token 10 ·")
    assert page.locator("[data-lane=a] .ds-selected").count() == 1


def test_no_width_scrolls_sideways(ran):
    race, page = ran, ran.page
    race.settings()
    if not page.locator("#ds-export").is_visible():
        page.locator("#ds-files > button").click()
    page.locator("#ds-export").wait_for()
    stands = race.data("frame-a")
    for width in (390, 768, 1440):
        page.set_viewport_size({"width": width, "height": 844})
        for dark in (False, True):
            recolour(page, dark)
            assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
        lanes = [page.locator(f".ds-lane[data-lane={lane}]").bounding_box() for lane in "ab"]
        assert (lanes[0]["y"] == lanes[1]["y"]) == (width >= 900)
    assert race.data("frame-a") == stands, "nothing moves by itself"
    page.set_viewport_size({"width": 1280, "height": 900})
    recolour(page, False)
    page.locator("#ds-files > button").click()
    race.settings(shown=False)


@pytest.mark.usefixtures("theme")
def test_text_is_legible(ran):
    race = ran
    race.page.locator("[data-scrub]").press("End")
    for _ in range(4):
        race.page.keyboard.press("ArrowLeft")
    found = inks(
        race.page, ".ds *, .ds-plan *, .ds-title *", ".ds-beyond, :disabled, .ds-gap, select"
    )
    assert illegible(found) == set()


def test_everything_has_a_name(ran):
    ran.settings()
    nameless = ran.page.evaluate(
        """() => [...document.querySelectorAll(
          'button, input, select, textarea, [role=img], [tabindex="0"]')]
        .filter((e) => e.offsetParent && e.type !== 'file')
        .filter((e) => !(e.textContent.trim() || e.ariaLabel || e.title ||
          (e.labels || []).length ||
          e.getAttribute('aria-labelledby')))
        .map((e) => e.outerHTML.slice(0, 120))"""
    )
    assert nameless == []
    snapshot = ran.page.locator("body").aria_snapshot()
    for name in (
        'button "Run"',
        'button "Stop"',
        'slider "Position in the run"',
        "Align the lanes",
    ):
        assert name in snapshot
    assert "undefined" not in snapshot


def test_the_keyboard_reaches_everything(ran):
    ran.settings(shown=False)
    reached, before = [], ran.begun
    ran.page.locator("[data-dice]").focus()
    for _ in range(80):
        ran.page.keyboard.press("Tab")
        reached.append(
            ran.page.evaluate(
                "(document.activeElement.closest('[id^=ds-]') || {}).id + ' ' +"
                " JSON.stringify(document.activeElement.dataset)"
            )
        )
    seen = " ".join(reached)
    for target in ("ds-run", "ds-settings", "ds-files", '"scrub"', '"align"', '"grid"'):
        assert target in seen
    ran.page.locator("#ds-run").focus()
    ran.page.keyboard.press("Enter")
    ran.over()
    assert ran.begun == before + 2, "the run, and the recording of a short one"
    assert ran.state == "done"


def test_colour_is_never_alone(ran):
    page = ran.page
    page.locator("[data-scrub]").press("End")
    page.keyboard.press("ArrowLeft")
    new = page.locator(".ds-lane .ds-new").first
    assert "underline" in new.evaluate("e => getComputedStyle(e).textDecorationLine")
    mask = page.locator(".ds-lane .ds-mask").first
    assert "radial-gradient" in mask.evaluate("e => getComputedStyle(e).backgroundImage")
    assert page.locator("#ds-race .ds-legend:has(+ .ds-lanes) li").count() == 8
