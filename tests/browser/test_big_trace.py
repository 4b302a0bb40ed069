"""Every view of a run as large as one of 8 billion parameters, in a real headless Chromium."""

from urllib.parse import parse_qs, urlsplit

import pytest

from engine.core.files import ASSETS
from engine.models.loading.families import embedded_models
from engine.serve.session import Session
from inspector.files import export
from tests.inspector.fake import serving
from tests.proofs.view_times import MAX_BYTES, VIEWS, largest
from tests.support.big_app import big_record
from tests.support.looking import cell_colour, drawn, pointed, show

pytest_plugins = ["tests.support.chromium"]
pytestmark = pytest.mark.browser

SHAPE = (4, 1024, 3072)  # fewer layers than the model has: they are read one at a time
PICTURES = """view => [...document.querySelectorAll(
  `#ds-race .ds-view[data-view=${view}] [data-figure]:not([hidden]) .ds-drawing`
)].filter((node) => node.offsetParent).map((node) => node.querySelector("[data-box]") !== null)"""


@pytest.fixture(scope="module")
def url():
    """The page in this process, for a process of its own would only import everything again."""
    record = big_record(*SHAPE)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(export, "read_example", lambda folder: record)
        with serving(Session(embedded_models(ASSETS)), ASSETS / "examples") as url:
            yield url


@pytest.fixture(scope="module")
def race(url, lasting_page):
    race = lasting_page(1440, 1000).open(url)
    race.page.evaluate("performance.setResourceTimingBufferSize(5000)")
    return race


def test_every_view_has_its_pictures_and_no_large_message(race):
    for view in VIEWS:
        show(race, view)
        pictures = race.page.evaluate(PICTURES, view)
        assert pictures or view == "what_if", view
        assert all(pictures), view
    size, asked = largest(race.page)
    assert 10_000 < size <= MAX_BYTES, asked
    documents = [url for url in race.watch.requests if "component_server" in url]
    assert len(documents) <= 4, "only the times of both lanes and the sweep are documents"


def test_a_zoomed_map_shows_its_cells_one_by_one(race):
    page = race.page
    show(race, "drift")
    figure = page.locator("#ds-race [data-figure=drift-steps]")
    joined = figure.get_by_text("a pixel that holds several cells shows the largest")
    assert joined.is_visible()
    canvas = figure.locator("canvas")
    canvas.hover(position={"x": 300, "y": 100})
    pointed(race)
    assert " cells " in figure.locator(".ds-words").inner_text()
    for _ in range(8):
        figure.locator("[data-tool=zoom-in]").click()
    pointed(race)
    assert joined.is_hidden()
    asked = [url for url in race.watch.requests if "position_to" in url]
    assert asked, "the cells in sight are asked for"
    assert "width" not in asked[-1]
    canvas.hover(position={"x": 300, "y": 100})
    pointed(race)
    words = figure.locator(".ds-words").inner_text()
    assert words.startswith("Position ")
    assert " cells " not in words
    assert len(cell_colour(race, "drift-steps", 3, 3)) == 3


def test_another_layer_is_asked_for_alone(race):
    show(race, "drift")
    race.quiet()
    before = len(race.watch.requests)
    race.page.locator("#ds-race [data-inspect-layer]").fill("3")
    drawn(race)
    race.quiet()
    asked = race.watch.requests[before:]
    assert asked
    assert all("/driftscope/slice?" in url for url in asked)
    queries = [parse_qs(urlsplit(url).query) for url in asked]
    assert all(len(query["layer"]) == 1 for query in queries)
    # Whole maps of the layers beside may be asked for ahead of time; cells in sight are not.
    assert {query["layer"][0] for query in queries if "position_from" in query} == {"3"}
