"""A headless Chromium on the running app, and a page of it as a person uses it."""

from __future__ import annotations

import shutil
from dataclasses import dataclass, field
from typing import Any

import pytest

from tests.browser import FINAL, running_app


def chromium() -> str | None:
    """Path of a Chromium, if the machine has one."""
    return shutil.which("chromium") or shutil.which("chromium-browser")


@dataclass
class Watch:
    """What went wrong on a page while it was open, and what it asked for."""

    errors: list[str] = field(default_factory=list)
    requests: list[str] = field(default_factory=list)

    def attach(self, page: Any) -> None:
        """Listen to the page's console, failures and requests."""
        page.on("console", lambda m: self.errors.append(m.text) if m.type == "error" else None)
        page.on("pageerror", lambda error: self.errors.append(str(error)))
        page.on("request", lambda request: self.requests.append(request.url))

    def offsite(self) -> list[str]:
        """Requests that left the machine."""
        near = ("http://127.0.0.1", "data:", "blob:")
        return [url for url in self.requests if not url.startswith(near)]


class RacePage:
    """The page as a person uses it."""

    def __init__(self, page: Any, watch: Watch) -> None:
        self.page, self.watch = page, watch

    def open(self, url: str) -> RacePage:
        """Load the page and wait for its plan."""
        self.page.goto(url)
        self.page.wait_for_selector("#ds-race .ds")
        self.page.wait_for_function(
            "document.querySelector('#ds-plan .ds-plan-row, #ds-plan [data-error]:not([hidden])')"
        )
        return self

    def settings(self) -> None:
        """Open the settings; Gradio writes its fields once more just after they are mounted."""
        self.page.locator("#ds-settings > button").click()
        self.page.locator("#ds-prompt textarea").wait_for()
        for _ in range(5):
            self.page.evaluate("new Promise((done) => requestIdleCallback(done))")

    def press(self, name: str) -> None:
        """Press one of Run, Pause, Step, Resume, Stop once it can be pressed."""
        self.page.locator(f"#ds-{name}:not([disabled])").click()

    def enabled(self, name: str) -> bool:
        """Whether a button can be pressed."""
        return self.page.locator(f"#ds-{name}").is_enabled()

    @property
    def state(self) -> str:
        """The race's state."""
        return self.data("state")

    def data(self, name: str) -> str:
        """A data attribute of the race view."""
        return self.page.locator("#ds-race .ds").get_attribute(f"data-{name}") or ""

    def shown(self, lane: str) -> int:
        """Tokens of a lane that are not masked on the canvas."""
        return self.page.locator(f"[data-lane={lane}] .ds-cell:not(.ds-mask)").count()

    def text(self, selector: str) -> str:
        """Visible text of an element of the race view."""
        return self.page.locator(f"#ds-race {selector}").first.inner_text()

    def wait_state(self, *states: str, timeout: float = 120) -> None:
        """Wait until the race is in one of the states."""
        self.page.wait_for_function(
            "s => s.includes(document.querySelector('#ds-race .ds').dataset.state)",
            arg=list(states), timeout=timeout * 1000,
        )  # fmt: skip

    def wait_steps(self, steps: int) -> None:
        """Wait until the race runs and lane A has taken so many steps."""
        self.wait_state("running")
        self.page.wait_for_function(
            "n => +document.querySelector('#ds-race .ds').dataset.frameA >= n", arg=steps
        )

    def finish(self) -> None:
        """Run to the end."""
        self.press("run")
        self.wait_state("starting", "loading", "warmup", "lock", "running", *FINAL)
        self.wait_state(*FINAL)
        self.page.locator("#ds-run:not([disabled])").wait_for()


@pytest.fixture(scope="session")
def app(tmp_path_factory):
    with running_app(tmp_path_factory.mktemp("browser")) as app:
        yield app
        assert "Traceback" not in app.log.read_text()


@pytest.fixture(scope="session")
def browser():
    from playwright.sync_api import sync_playwright

    if chromium() is None:
        pytest.skip("no Chromium on this machine")
    with sync_playwright() as play:
        browser = play.chromium.launch(executable_path=chromium(), args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture
def new_page(browser):
    """Make pages; at the end none may have failed or asked another machine for anything."""
    opened = []

    def make(width=1280, height=900, **options):
        context = browser.new_context(viewport={"width": width, "height": height}, **options)
        watch = Watch()
        page = context.new_page()
        watch.attach(page)
        opened.append((context, watch))
        return RacePage(page, watch)

    yield make
    for context, watch in opened:
        context.close()
        assert watch.errors == []
        assert watch.offsite() == []


@pytest.fixture
def small(app, new_page):
    return new_page().open(app.link())
