"""Answers that fail or come late: what the page says, and which buttons work."""

import json
import time
from urllib.request import urlopen

import pytest

from tests.support.browser import LONG
from tests.support.chromium import IDLE, PATIENCE

pytest_plugins = ["tests.support.chromium"]
pytestmark = pytest.mark.browser


@pytest.fixture(scope="module")
def listeners(app):
    """The listeners of the page: their ids by name."""
    found = {}
    for row in json.load(urlopen(app.url + "/config"))["dependencies"]:
        found.setdefault(row["api_name"].rstrip("_0123456789"), []).append(row["id"])
    return found


@pytest.fixture(scope="module")
def long(app, lasting_page):
    """A page with the settings of a long race; its tests change them."""
    return lasting_page().open(app.link(**LONG))


class Answers:
    """Holds back or fails the answers of some listeners of a page."""

    def __init__(self, race, ids, fails=False):
        self.race, self.ids, self.fails = race, ids, fails
        self.held = []
        race.page.route("**/run/predict*", self._route)

    def _route(self, route):
        if route.request.post_data_json["fn_index"] not in self.ids:
            route.continue_()
        elif self.fails:
            route.fulfill(status=502, body="")
        else:
            self.held.append(route)

    def wait(self):
        """Wait until an answer is held back."""
        end = time.monotonic() + PATIENCE / 1000
        while not self.held:
            assert time.monotonic() < end, "the page did not ask"
            self.race.page.wait_for_timeout(50)

    def release(self):
        """Answer what was held back, and everything from now on."""
        self.ids = []
        for route in self.held:
            route.continue_()

    def forgive(self):
        """Let all answers pass, and forget the browser's own messages of failed requests."""
        self.race.page.unroute_all()
        assert all("502" in one for one in self.race.watch.errors)
        self.race.watch.errors.clear()


def forget(route):
    """Answer a question for the whole race as a server that lacks it."""
    if route.request.post_data_json["fn_name"] == "replay":
        route.fulfill(json=json.dumps({"run": None, "state": "failed", "message": "", "lanes": {}}))
    else:
        route.continue_()


def tell(race, name):
    """Tell the components of the page that something is over."""
    race.page.evaluate("name => document.dispatchEvent(new CustomEvent(name))", name)


def test_run_waits_for_the_settings_of_a_link(app, new_page, listeners):
    """Meanwhile the defaults cannot be run instead."""
    race = new_page()
    answers = Answers(race, listeners["restore"])
    race.page.goto(app.link())
    race.page.wait_for_selector("#ds-race .ds")
    answers.wait()
    for _ in range(5):
        race.page.evaluate(IDLE)
    assert len(answers.held) == 1
    assert not race.enabled("run")
    answers.release()
    race.press("run")
    race.wait_state("done")
    assert race.shown("a") == 32


def test_settings_that_could_not_be_read_are_said_and_the_defaults_run(app, new_page, listeners):
    race = new_page()
    answers = Answers(race, listeners["restore"], fails=True)
    race.open(app.link())
    race.ready()
    said = "The settings of the link could not be read."
    race.page.locator("[data-note]", has_text=said).wait_for()
    race.page.locator("[data-spoken]", has_text=said).wait_for(state="attached")
    race.planned("64 steps / 4 blocks = 16 per block")
    answers.forgive()


def test_a_plan_that_fails_is_said_and_the_next_one_enables_run(long, listeners):
    race = long
    race.ready()
    answers = Answers(race, listeners["plan"], fails=True)
    race.settings()
    seed = race.page.locator("#ds-seed input[type=number]").first
    seed.fill("3")
    race.planned("Cannot run. The server did not answer.")
    assert race.page.locator("#ds-link-field").input_value() == ""
    assert race.page.locator("#ds-plan [data-copy]").is_disabled()
    answers.forgive()
    seed.fill("4")
    race.planned(" blocks = ")
    race.ready()
    assert "seed=4" in race.page.locator("#ds-link-field").input_value()


def test_changes_that_come_together_are_planned_once(long, listeners):
    """Gradio calls for each of them, and a preset may change thirty settings."""
    long.ready()
    asked = []

    def plans(request):
        return "/run/predict" in request.url and (
            request.post_data_json["fn_index"] in listeners["plan"]
        )

    def note(request):
        asked.extend([request] * plans(request))

    long.page.on("request", note)
    with long.page.expect_request(plans):
        long.page.evaluate(
            "for (let i = 0; i < 5; i++)"
            "document.dispatchEvent(new CustomEvent('driftscope-changed'))"
        )
    long.settled()
    long.page.remove_listener("request", note)
    assert len(asked) == 1


def test_an_import_asks_for_the_end_of_a_run_that_holds_no_keys(long):
    """As that of a run card whose messages stop."""
    race, page = long, long.page
    race.pause_at(2)
    with page.expect_response(lambda one: '"replay"' in (one.request.post_data or "")):
        tell(race, "driftscope-over")  # the run goes on, and its keys are given back
    page.locator("#ds-race .ds[data-held=no]").wait_for()
    page.route("**/component_server/", forget)
    tell(race, "driftscope-import-over")
    race.wait_state("failed")
    page.unroute_all()
    race.press("stop")
    race.wait_state("stopped")


def test_a_run_whose_messages_stop_has_failed_if_the_server_lacks_it(long):
    """A handler that fails ends them, and Gradio's page says nothing to the race."""
    race = long
    race.pause_at(2)
    race.page.route("**/component_server/", forget)
    tell(race, "driftscope-over")
    race.wait_state("failed")
    said = "The run broke off, and the server no longer has it. Run it again."
    race.page.locator("[data-note]", has_text=said).wait_for()
    race.page.unroute_all()
    race.press("stop")
    race.wait_state("stopped")


def test_during_a_run_the_page_says_what_it_decodes_and_shows_nothing_else(long):
    race = long
    race.press("run")
    race.wait_steps(2)
    race.page.locator("#ds-plan [data-dice]").click()
    other = race.page.locator("#ds-race [data-other]")
    other.wait_for()
    assert "Lily buys 5 nuts" in other.inner_text()
    race.settings()
    race.page.locator("#ds-recorded input").click()
    race.page.get_by_role("option", name="Fast-dLLM dual cache", exact=True).click()
    race.page.get_by_text("A run is going on: stop it").wait_for()
    race.wait_state("running")
    race.press("stop")
    race.wait_state("stopped")
