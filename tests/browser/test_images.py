"""An image beside the prompt, and its rows above the tokens, in the page."""

import pytest

from engine.core.files import ASSETS
from engine.models.loading.families import embedded_models
from engine.serve.session import Session
from tests.inspector.fake import serving
from tests.support.llada_v import MICRO, NAME, image_file, plain

pytest_plugins = ["tests.support.chromium"]
pytestmark = pytest.mark.browser
SHAPE = (
    f"model={NAME}&prompt=What+is+this%3F&gen_length=8&block_length=8&a.steps=2&b.steps=2"
    "&b.cache=prefix&b.unmasker=quota"
)


@pytest.fixture(scope="module")
def url():
    with serving(Session(embedded_models(ASSETS) | {NAME: MICRO})) as url:
        yield url


@pytest.fixture(scope="module")
def race(lasting_page, url):
    """A page with a model that takes images, and its settings open."""
    race = lasting_page().open(f"{url}/?{SHAPE}")
    race.settings()
    return race


def choose_model(race, title):
    race.page.locator("#ds-model input").click()
    race.page.get_by_role("option", name=f"{title} · on this machine").click()


def test_an_image_is_dropped_run_unfolded_and_pinned(race, tmp_path):
    page = race.page
    path = tmp_path / "a.png"
    path.write_bytes(image_file(plain(300, 200)))
    page.locator("#ds-image input[type=file]").set_input_files(path)
    page.locator("#ds-image-shown figure img").wait_for()
    race.planned("images 1261")
    race.press("run")
    race.wait_state("done")
    race.over()  # the views of a run change while it is recorded
    strip = page.locator("#ds-race [data-lane=b] .ds-strip")
    assert "300 × 200" in strip.locator("summary").inner_text()
    assert strip.locator("canvas:visible").count() == 1  # the tile of the folded strip
    assert strip.evaluate("node => getComputedStyle(node).display") == "block"
    strip.locator("summary").click()
    board = strip.locator(".ds-strip-grid canvas").nth(1)
    board.focus()
    for key in ("ArrowRight", "ArrowRight", "ArrowDown"):
        page.keyboard.press(key)
    said = strip.locator(".ds-strip-said")
    assert "tiles, row 2, column 2" in said.inner_text()
    assert said.get_attribute("aria-live") == "polite"
    strip.locator(".ds-strip-grid canvas").first.hover()
    assert "whole image" in said.inner_text()
    assert (said.get_attribute("role"), said.get_attribute("aria-live")) == (None, "off")
    board.focus()
    page.keyboard.press("Enter")
    page.locator("#ds-race [data-inspect]").scroll_into_view_if_needed()
    page.wait_for_function(
        "document.querySelector('#ds-race [data-inspect]').innerText"
        ".includes('image 1, tiles, row 2, column 2')"
    )
    page.locator("#ds-race [data-prompt-box] summary").click()
    page.locator("#ds-race .ds-prompt-image").wait_for()
    page.locator("#ds-image-remove").click()
    page.locator("#ds-image-shown figure").wait_for(state="detached")


def test_a_refused_file_and_a_text_model_are_explained(race, tmp_path):
    page = race.page
    path = tmp_path / "a.png"
    path.write_bytes(b"no image")
    page.locator("#ds-image input[type=file]").set_input_files(path)
    page.locator("#ds-image-shown .ds-refusal").wait_for()
    assert "no image that is read here" in page.locator("#ds-image-shown").inner_text()
    page.locator("#ds-image-example").click()
    page.locator("#ds-image-shown figure img").wait_for()
    choose_model(race, "Tiny LLaDA")
    race.planned("takes text only; remove the image")
    page.locator("#ds-image-box").wait_for(state="hidden")
    page.locator("#ds-image-remove").click()
    race.planned("forwards")
    choose_model(race, NAME)
    page.locator("#ds-image-box").wait_for()
