"""A Space as its visitors see it: who waits, what is refused, a shared GPU, no memory left."""

import pytest
import torch
from gradio_client.exceptions import AppError

import engine.serve.lane
from engine.core.files import ASSETS
from engine.models.loading.families import embedded_models
from engine.serve.fair_queue import RunLock
from engine.serve.session import Session
from inspector.space.zero import SharedGpu, ZeroSession
from tests.engine.serve.test_fair_queue import with_pace
from tests.inspector.fake import serving
from tests.support.browser import PROMPT, SMALL, App
from tests.support.forking import spaces
from tests.support.web import program

pytest_plugins = ["tests.support.chromium"]
pytestmark = pytest.mark.browser
SOLVED = (
    "Lily has 3 boxes with 7 cards each. Soon she has 2 times as many. "
    "How many cards does Lily have now?"
)
SHARED = SharedGpu(
    frozenset({("tiny-llada", "float32")}), 48_000_000_000, lambda s, p: 9.0, device="cpu"
)


@pytest.fixture(scope="module")
def public():
    return Session(embedded_models(ASSETS), public=True)


@pytest.fixture(scope="module")
def site(public, tmp_path_factory):
    with serving(public, ASSETS / "examples") as url:
        yield App(url, tmp_path_factory.mktemp("site") / "log")


@pytest.fixture(scope="module")
def visitor(site, lasting_page):
    """A small screen with the settings of a short race."""
    return lasting_page(390, 844).open(site.link(gen_length="16", **{"a.steps": "16"}))


def test_who_waits_sees_a_place_and_an_estimate(public, visitor):
    other = RunLock(public.queue, 100)
    assert other.acquire(0)
    with_pace(other, 20, 8.0)
    race = visitor
    race.press("run")
    race.wait_state("lock")
    words = race.page.locator("#ds-race [data-fetch-words]")
    race.page.wait_for_function("document.querySelector('[data-fetch-words]').textContent")
    assert words.inner_text().startswith("1 run ahead of yours · at most about ")
    assert not race.page.locator("#ds-race [data-fetch-bar]").is_visible()
    assert race.page.evaluate("document.documentElement.scrollWidth") == 390
    other.release()
    race.over()
    assert race.state == "done"
    assert not words.is_visible()


def test_what_is_beyond_is_refused_in_the_page_and_by_the_api(site, new_page):
    race = new_page().open(site.link(gen_length="544", **{"a.steps": "544"}))
    race.planned("Answer length: 544 is more than this public page allows; at most 512")
    race.page.locator("#ds-run[disabled]").wait_for()
    assert "once these settings can be run" in race.page.locator("[data-question]").inner_text()
    shape = {k: v for k, v in SMALL.items() if "." not in k} | {"gen_length": 64, "steps": 64}
    shape |= {"block_length": 16, "prompt": PROMPT * 70}
    with pytest.raises(AppError, match="shorten it to 4000"):
        program(site.url).predict({"a": shape, "b": shape}, api_name="/plan")


def test_no_memory_left_is_a_state_with_a_remedy(visitor, monkeypatch):
    def fail(self):
        raise torch.OutOfMemoryError("CUDA out of memory")

    race = visitor
    with monkeypatch.context() as patch:
        patch.setattr(engine.serve.lane.Lane, "advance", fail)
        race.press("run")
        race.over()
    assert race.state == "memory"
    assert "set dtype to bfloat16" in race.text("[data-note]")
    race.finish()
    assert race.state == "done"


def test_a_shared_gpu_says_what_it_asks_for_and_why_it_refuses(public, new_page, tmp_path):
    left = {"seconds": 100}

    def decorate(task, duration):
        return lambda *given: spaces.GPU(task, duration=duration, left=left["seconds"])(*given)

    with serving(ZeroSession(public, SHARED, decorate), None) as url:
        race = new_page().open(App(url, tmp_path).link(prompt=SOLVED))
        race.planned("requests 28 s of your ZeroGPU quota")
        race.finish()
        assert race.state == "done"
        assert race.text("[data-lane=a] [data-answer]").endswith("The answer is 42.")
        left["seconds"] = 5
        race.press("run")
        race.over()
        assert race.state == "failed"
        assert "18s requested vs. 5s left" in race.text("[data-note]")
