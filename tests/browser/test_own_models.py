"""Other models than the first: of the list, typed as a folder, refused on a public page."""

import pytest

from engine.models.loading.families import embedded_models
from engine.models.loading.hub import Hub
from engine.serve.session import Session
from tests.browser.test_models import choose, opened, take, type_model
from tests.inspector import fake
from tests.support.browser import ROOT
from tests.support.micro import write_checkpoint

pytest_plugins = ["tests.support.chromium"]
pytestmark = pytest.mark.browser


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A micro checkpoint of the family whose logits are shifted."""
    return write_checkpoint(tmp_path_factory.mktemp("models") / "micro-dream", kind="dream")


@pytest.fixture(scope="module")
def shared(app, lasting_page):
    """A page with its settings open, on which each test chooses its model."""
    race = lasting_page().open(app.link(gen_length="16", **{"a.steps": "8"}))
    race.settings()
    return race


def test_another_model_of_the_list_runs(shared):
    race = shared
    choose(race.page, "model", "Tiny Dream ·")
    race.planned("tokens")
    race.finish()
    assert race.state == "done"
    race.page.locator("#ds-race [data-numbers] summary").click()
    assert "Model tiny-dream" in race.text("[data-env]")
    race.page.wait_for_function(
        "document.querySelector('#ds-race [data-run-card]').textContent.includes('\"tiny-dream\"')"
    )
    assert '"device": "cpu"' in race.text("[data-run-card]")


def test_a_typed_folder_is_loaded_and_run(shared, new_page, folder):
    race = shared
    type_model(race.page, f" {folder} ")
    race.page.wait_for_function(
        "document.querySelector('#ds-link-field').value.includes('micro-dream')"
    )
    race.page.wait_for_selector("#ds-preset-names[disabled]")
    race.finish()
    assert race.state == "done"
    link = race.page.locator("#ds-link-field").input_value()
    again = new_page().open(link)
    again.page.wait_for_function(
        "link => document.querySelector('#ds-link-field').value === link", arg=link
    )
    type_wrong = str(folder.parent / "gone")
    type_model(race.page, type_wrong)
    race.planned("Cannot run. Model:")
    race.page.wait_for_selector("#ds-run[disabled]")


def test_a_preset_of_the_embedded_model_is_planned(shared):
    race = shared
    choose(race.page, "model", "Tiny Dream ·")
    race.settled()
    box = race.page.locator("#ds-model input")
    box.fill("tiny-llada")
    box.press("Enter")
    race.settled()
    options = race.page.locator("#ds-preset-names option")
    take(race.page, options.nth(options.count() - 1).text_content())
    race.page.wait_for_function("document.querySelector('#ds-preset-names').value !== ''")
    race.planned("Copy")
    assert race.page.locator("#ds-preset-names").input_value()


def test_a_public_page_takes_no_folder(new_page, folder):
    session = Session(embedded_models(ROOT / "assets"), Hub(folder.parent / "hub"), public=True)
    with fake.serving(session) as url:
        race = opened(new_page, url, model=str(folder))
        assert "is not on this server" in race.text("[data-note]")
        race.settings()
        assert "Hub" not in race.page.locator("#ds-model").inner_text()
