"""An image beside the prompt, and its rows above the tokens, in the page."""

import pytest

from tests.support.browser import running_app
from tests.support.llada_v import MICRO, NAME, image_file, plain

pytest_plugins = ["tests.support.chromium"]
pytestmark = pytest.mark.browser
SHAPE = (
    f"model={NAME}&prompt=What+is+this%3F&gen_length=8&block_length=8&a.steps=8&b.steps=8"
    "&b.cache=prefix&b.unmasker=quota"
)


@pytest.fixture(scope="module")
def url(tmp_path_factory):
    with running_app(tmp_path_factory.mktemp("images"), DRIFTSCOPE_MODELS=str(MICRO)) as app:
        yield app.url


def test_an_image_is_dropped_run_unfolded_and_pinned(new_page, url, tmp_path):
    race = new_page().open(f"{url}/?{SHAPE}")
    page = race.page
    race.settings()
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
    strip.locator("summary").click()
    board = strip.locator(".ds-strip-grid canvas").nth(1)
    board.focus()
    for key in ("ArrowRight", "ArrowRight", "ArrowDown"):
        page.keyboard.press(key)
    assert "tiles, row 2, column 2" in strip.locator(".ds-strip-said").inner_text()
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
    assert race.watch.errors == []


def test_a_refused_file_and_a_text_model_are_explained(new_page, url, tmp_path):
    race = new_page().open(f"{url}/?{SHAPE}")
    page = race.page
    race.settings()
    path = tmp_path / "a.png"
    path.write_bytes(b"no image")
    page.locator("#ds-image input[type=file]").set_input_files(path)
    page.locator("#ds-image-shown .ds-refusal").wait_for()
    assert "no image that is read here" in page.locator("#ds-image-shown").inner_text()
    page.locator("#ds-image-example").click()
    page.locator("#ds-image-shown figure img").wait_for()
    page.locator("#ds-model input").click()
    page.get_by_role("option", name="Tiny LLaDA · on this machine").click()
    race.planned("takes text only; remove the image")
    page.locator("#ds-image-box").wait_for(state="hidden")
    page.locator("#ds-image-remove").click()
    race.planned("forwards")


def test_a_text_model_offers_no_image(new_page, url):
    race = new_page().open(url)
    race.settings()
    assert (
        race.page.locator("#ds-image").count() == 0
        or not race.page.locator("#ds-image").is_visible()
    )
