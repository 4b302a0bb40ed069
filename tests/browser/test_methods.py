"""The Methods tab in a real Chromium: every page, its link, its widths, names and contrast."""

from dataclasses import replace
from urllib.parse import urlsplit

import pytest

from engine.catalog import describe
from engine.config.spec import RaceSpec
from tests.support.chromium import touched
from tests.support.looking import illegible, inks, recolour

pytest_plugins = ["tests.support.chromium"]
pytestmark = pytest.mark.browser

METHODS = {row["name"]: row for kind in ("caches", "unmaskers") for row in describe()[kind]}
FITS = "document.documentElement.scrollWidth <= innerWidth"

READ = """() => {
  const all = (what) => [...document.querySelectorAll(what)];
  const texts = (what) => all(what).map((e) => e.textContent);
  return {
    title: document.querySelector('[data-method-title]').innerText,
    paragraphs: texts('[data-method-description] p'),
    knobs: all('[data-knob]').map((e) => e.dataset.knob),
    figures: texts('[data-method-published] strong'),
    unpublished: document.querySelector('[data-method-unpublished]').checkVisibility(),
    current: texts('[data-method-list] [aria-current=page]'),
    paper: all('[data-method-paper] a')
      .map((e) => [e.innerText, e.getAttribute('href'), e.getAttribute('rel')]),
    link: document.querySelector('[data-method-try]').href,
  };
}"""


class Book:
    """The tab as a person uses it."""

    def __init__(self, race, url):
        self.race, self.page = race.open(url), race.page
        self.early = self.page.locator("[data-methods]").count()
        self.open()

    def open(self):
        self.page.get_by_role("tab", name="Methods", exact=True).click()
        self.page.wait_for_selector("#ds-methods [data-methods][data-method]")

    def turn(self, name):
        self.page.locator(f"#ds-method-{name}").click()
        self.shows(name)

    def shows(self, name):
        self.page.wait_for_selector(f"[data-methods][data-method={name}]")

    def part(self, name):
        return self.page.locator(f"[data-method-{name}]")

    @property
    def link(self):
        return self.part("try").evaluate("node => node.href")


@pytest.fixture(scope="module")
def reader(app, lasting_page):
    """One open tab for the tests that only turn pages."""
    return Book(lasting_page(), f"{app.url}/?__theme=light")


@pytest.fixture(scope="module")
def pages(reader):
    """What the page of each method shows."""
    found = {}
    for name in METHODS:
        reader.turn(name)
        found[name] = reader.page.evaluate(READ)
    return found


def test_every_method_has_its_page(reader, pages):
    listed = reader.page.locator("[data-method-list] button").evaluate_all(
        "keys => keys.map((key) => [key.dataset.method, key.textContent])"
    )
    assert listed == [[name, row["title"]] for name, row in METHODS.items()]
    for name, row in METHODS.items():
        shown = {key: pages[name][key] for key in pages[name].keys() - {"paper", "link"}}
        assert shown == {
            "title": row["title"],
            "paragraphs": [part.replace("`", "") for part in row["description"].split("\n\n")],
            "knobs": [f"{name}.{knob['name']}" for knob in row["knobs"]],
            "figures": [one["figure"] for one in row["published"]],
            "unpublished": not row["published"],
            "current": [row["title"]],
        }


def test_papers_are_linked_by_their_number(pages):
    for name, row in METHODS.items():
        number = row["paper"].removeprefix("arXiv ")
        link = [row["paper"], f"https://arxiv.org/abs/{number}", "noopener"]
        assert pages[name]["paper"] == [link] * bool(row["paper"])


def test_links_bring_plain_decoding_and_the_method(pages):
    races = {
        name: RaceSpec.from_query(urlsplit(page["link"]).query) for name, page in pages.items()
    }
    plain = races["none"].a
    assert plain == races["none"].b
    for name, race in races.items():
        kind = "cache" if "stackable_on" in METHODS[name] else "unmasker"
        blocks = "full" not in METHODS[name].get("attention", ("full",))
        base = replace(plain, model="tiny-block", block_length=16) if blocks else plain
        assert race == RaceSpec(base, replace(base, **{kind: name}))


def test_try_it_opens_the_race(reader):
    book = reader
    book.turn("dare_o")
    link, page = book.link, book.page
    book.part("try").click()
    page.wait_for_url(link)
    page.wait_for_function(
        "document.querySelectorAll('#ds-plan .ds-plan-row strong')[1]?.textContent"
        ".startsWith('DARE-O')"
    )
    assert page.locator("#ds-plan .ds-plan-row strong").first.text_content() == "Plain decoding"
    book.race.settings()
    for field, value in (("cache", "DARE-O"), ("unmasker", "Quota")):
        assert page.locator(f"#ds-b-{field} input").input_value() == value
    assert page.locator("#ds-a-cache input").input_value() == "No cache"
    assert page.locator("#ds-run").is_enabled()
    book.open()


def test_what_stands_on_what_leads_to_its_page(reader):
    reader.turn("dare_kv")
    assert "written prefix+dare_kv" in reader.part("stack").inner_text()
    reader.part("stack").get_by_role("button", name="Fast-dLLM dual cache").click()
    reader.shows("dual")
    assert reader.page.evaluate("document.activeElement.id") == "ds-methods-title"
    reader.turn("spa_cache")
    assert reader.part("stack").is_hidden()


def test_own_measurements_stand_beside_the_baseline(reader):
    reader.turn("spa_cache")
    rows = reader.page.locator("[data-method-measured] tbody th").all_text_contents()
    assert rows[:2] == ["plain decoding", "SPA-Cache 50/7"]
    assert "McNemar" in reader.part("note").inner_text()
    reader.turn("frechet")
    assert reader.part("measured-part").is_hidden()


def test_the_keyboard_reaches_every_method(reader):
    first, second = list(METHODS)[:2]
    reader.page.locator(f"#ds-method-{first}").focus()
    reader.page.keyboard.press("Tab")
    assert reader.page.evaluate("document.activeElement.id") == f"ds-method-{second}"
    reader.page.keyboard.press("Enter")
    reader.shows(second)


def test_the_last_method_of_the_list_can_be_seen_beside_the_page_of_another(reader):
    reader.turn("dllm_cache")
    reader.page.set_viewport_size({"width": 1280, "height": 500})
    reader.part("knobs").evaluate("node => node.scrollIntoView()")
    last = reader.page.locator(f"#ds-method-{list(METHODS)[-1]}")
    last.focus()
    box = last.bounding_box()
    assert box["y"] >= 0
    assert box["y"] + box["height"] <= 500
    reader.page.set_viewport_size({"width": 1280, "height": 900})


def test_everything_has_a_name(reader):
    reader.turn("dllm_cache")
    snapshot = reader.page.locator("#ds-methods").aria_snapshot()
    for name in (
        'navigation "All methods"', 'button "dLLM-Cache"', 'article "dLLM-Cache"',
        'heading "Published figures"', 'table "Settings"', 'columnheader "Default"',
        'rowheader "Prompt refresh interval (Kp)', 'link "arXiv 2506.06295"', 'link "Try it',
        'region "Measured here"', 'region "Table of published figures"', 'columnheader "GPU"',
        'columnheader "Lengths"', 'columnheader "Shots"',
    ):  # fmt: skip
        assert name in snapshot
    assert "undefined" not in snapshot


def test_no_width_scrolls_sideways(reader):
    book = reader
    for width in (390, 768, 1440):
        book.page.set_viewport_size({"width": width, "height": 844})
        for name in ("none", "spa_cache", "dare_o", "frechet"):
            book.turn(name)
            assert book.page.evaluate(FITS)
            if width < 900:
                top = book.part("page").bounding_box()["y"]
                assert -1 <= top <= 844
    book.page.set_viewport_size({"width": 1280, "height": 900})


def test_fingers_have_room(reader):
    page = reader.page
    reader.turn("dare_o")
    targets = page.locator("#ds-methods button:not(.ds-term), [data-method-try]")
    beneath = [name for name in METHODS["dare_o"]["stackable_on"] if name != "none"]
    assert targets.count() == len(METHODS) + len(beneath) + 1
    page.set_viewport_size({"width": 390, "height": 844})
    with touched(page):
        heights = targets.evaluate_all("all => all.map((e) => e.getBoundingClientRect().height)")
    page.set_viewport_size({"width": 1280, "height": 900})
    assert min(heights) >= 44


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_text_is_legible(reader, theme):
    reader.turn("dual")
    recolour(reader.page, theme == "dark")
    found = inks(reader.page, ".ds-methods *")
    recolour(reader.page, False)
    assert len(found) > 60
    assert illegible(found) == set()


def test_nothing_of_it_is_loaded_before_it_is_opened(reader):
    assert reader.early == 0
    assert reader.page.locator("[data-methods]").count() > 0
