"""Choosing a model, a preset and a device in the page; a download as it is seen, and stopped."""

import threading
from urllib.parse import urlencode

import pytest

from engine.models.loading.families import embedded_models
from engine.serve.session import Session
from tests.inspector import fake
from tests.support.browser import PROMPT, ROOT, SMALL
from tests.support.looking import illegible, inks, recolour

pytest_plugins = ["tests.support.chromium"]
pytestmark = pytest.mark.browser


@pytest.fixture(scope="module")
def big():
    return fake.Session(Session(embedded_models(ROOT / "assets")))


@pytest.fixture(scope="module")
def url(big):
    with fake.serving(big) as url:
        yield url


@pytest.fixture(autouse=True)
def nothing_fetched(big):
    big.fetched.clear()


@pytest.fixture
def held(big):
    """The download stands at its half until the gate is opened."""
    big.held_at, big.gate = 3, threading.Event()
    yield big
    big.gate.set()
    big.held_at = -1


def opened(new_page, url, *size, **changes):
    return new_page(*size).open(f"{url}/?{urlencode(SMALL | changes)}")


@pytest.fixture(scope="module")
def shared(lasting_page, url):
    """A page that asks for the big model, for the tests that only fetch it."""
    return opened(lasting_page, url, model=fake.BIG)


@pytest.fixture(scope="module")
def planned(lasting_page, url):
    """A page with its settings open, for the tests that choose settings."""
    race = opened(lasting_page, url, model=fake.BIG, device="cuda")
    race.settings()
    return race


def choose(page, field, label):
    page.locator(f"#ds-{field} input").click()
    page.get_by_role("option", name=label).click()


def preset(page):
    """What the chooser of presets shows."""
    return page.locator("#ds-preset-names option:checked").text_content()


def take(page, label):
    page.locator("#ds-preset-names").select_option(label=label)


def wait_preset(page, name):
    page.wait_for_function(
        "name => document.querySelector('#ds-preset-names').value === name", arg=name
    )


def value(page, field):
    return page.locator(f"#ds-{field} input, #ds-{field} textarea").first.input_value()


def wait_value(page, field, expected):
    page.wait_for_function(
        "([id, value]) => document.querySelector(id + ' input')?.value === value",
        arg=[f"#ds-{field}", expected],
    )


def type_model(page, name):
    box = page.locator("#ds-model input")
    box.fill(name)
    box.press("Enter")
    box.press("Tab")


def wait_fetch(page, words):
    page.wait_for_function(
        "words => document.querySelector('[data-fetch-words]').textContent.includes(words)",
        arg=words,
    )


def test_a_preset_fills_lane_b_and_runs(planned):
    race, page = planned, planned.page
    type_model(page, fake.BIG)
    page.locator("#ds-prompt textarea").fill(PROMPT)
    race.settled()
    take(page, "Fast-dLLM, dual (paper, table 2)")
    wait_value(page, "gen_length", "64")
    race.planned("Threshold 0.8")
    assert (value(page, "prompt"), value(page, "b-cache")) == (PROMPT, "Fast-dLLM dual cache")
    assert (value(page, "a-unmasker"), value(page, "a-cache")) == ("Quota", "No cache")
    assert preset(page) == "Fast-dLLM, dual (paper, table 2)"
    link = page.locator("#ds-link-field").input_value()
    assert "b.threshold.threshold=0.8" in link
    assert "preset" not in link
    race.finish()
    assert race.state == "done"
    assert race.shown("b") == 64
    page.wait_for_function(
        "document.querySelector('#ds-model input').value.includes('on this machine')"
    )
    assert preset(page) == "Fast-dLLM, dual (paper, table 2)"


def test_an_edit_by_hand_or_another_model_takes_the_preset_away(planned):
    race, page = planned, planned.page
    take(page, "dLLM-Cache, GSM8K (paper, table 1)")
    race.planned("256 steps / 32 blocks")
    page.locator("#ds-prompt textarea").fill("Another one?")
    race.planned("Another one?")
    assert preset(page).startswith("dLLM-Cache")
    page.locator("#ds-gen_length input").fill("64")
    wait_preset(page, "")
    take(page, "dLLM-Cache, GSM8K (paper, table 1)")
    wait_value(page, "gen_length", "256")
    choose(page, "model", fake.DREAM)
    wait_preset(page, "")
    take(page, "Dream with dLLM-Cache (paper, table 3)")
    wait_value(page, "a-unmasker", "Dream")
    wait_value(page, "b-unmasker", "Dream")


def test_the_plan_says_what_is_fetched_and_what_does_not_fit(planned):
    race, page = planned, planned.page
    type_model(page, fake.BIG)
    race.planned("weights 16.0 GB + runs 600 MB of 80.0 GB free; 16.0 GB to download first")
    assert value(page, "device") == "cuda"
    type_model(page, fake.HUGE)
    race.planned("Cannot run. Model: needs 140 GB")
    page.wait_for_selector("#ds-run[disabled]")
    type_model(page, fake.BIG)
    race.ready()


@pytest.mark.usefixtures("held")
@pytest.mark.parametrize(("wide", "theme"), [(1280, "dark"), (390, "light")])
def test_a_download_is_seen_heard_and_stopped(shared, wide, theme):
    race, page = shared, shared.page
    page.set_viewport_size({"width": wide, "height": 900})
    recolour(page, theme == "dark")
    race.press("run")
    race.wait_state("fetching")
    wait_fetch(page, " · 50 % · ")
    assert race.text("[data-fetch]") == fake.BIG + " · 50 % · 8.00 of 16.0 GB"
    assert page.evaluate("document.querySelector('[data-fetch-bar]').value") == 0.5
    page.wait_for_function(
        "document.querySelector('#ds-race [data-spoken]').textContent"
        " === 'Downloading the model …. 50 % of 16.0 GB'"
    )
    found = inks(page, "#ds-race .ds-fetch *")
    assert found
    assert not illegible(found)
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    race.press("stop")
    race.wait_state("stopped")
    page.locator("#ds-race [data-fetch]").wait_for(state="hidden")
    page.locator("#ds-race [data-note]").wait_for()
    race.ready()
    assert "othing was computed" in race.text("[data-note]")
    assert page.locator("#ds-race .ds-cell:visible").count() == 0
    page.set_viewport_size({"width": 1280, "height": 900})
    recolour(page, False)


def test_a_download_goes_on_into_the_race(shared, held):
    race = shared
    race.page.evaluate("document.dispatchEvent(new CustomEvent('driftscope-changed'))")
    race.planned("to download")
    race.press("run")
    race.wait_state("fetching")
    held.gate.set()
    race.wait_state("done")
    race.page.locator("#ds-race [data-fetch]").wait_for(state="hidden")
    race.planned("of 80.0 GB free")
    race.page.wait_for_function(
        "!document.querySelector('#ds-plan').innerText.includes('to download')"
    )
    race.settings()
    race.page.wait_for_function(
        "document.querySelector('#ds-model input').value.includes('on this machine')"
    )
    race.settings(shown=False)


def test_a_recording_offers_stop_alone_and_if_stopped_keeps_the_run_and_its_times(shared, held):
    held.gate.set()
    race = shared
    race.finish()
    took = race.text("[data-lane=a] [data-stats]")
    held.gate.clear()
    race.page.locator("#ds-race [data-record=layers]").click()
    wait_fetch(race.page, " · 50 % · ")
    assert race.state == "recording"
    assert race.text(".ds-state").endswith("Stop ends it · Downloading the model …")
    assert not any(race.enabled(name) for name in ("run", "pause", "step", "resume"))
    race.press("stop")
    race.over()
    assert race.state == "done"
    assert race.text("[data-lane=a] [data-stats]") == took
    assert race.text("[data-note]") == "The recording was stopped and is discarded."


def test_the_bar_rises_and_hostile_names_are_text(shared, held):
    held.waits = fake.download("<img src=x onerror=window.hit=1>\u202e")
    race = shared
    race.press("run")
    race.wait_state("fetching")
    wait_fetch(race.page, "⟨U+202E⟩ · 50 %")
    assert race.page.locator("#ds-race img").count() == 0
    assert race.page.evaluate("window.hit") is None
    race.press("stop")
    race.over()
    held.waits = fake.download()
