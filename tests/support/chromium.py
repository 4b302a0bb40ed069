"""A headless Chromium on the running app, and a page of it as a person uses it."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest

from tests.support.browser import FINAL, running_app

PATIENCE = 60_000  # milliseconds: a machine that builds may be busy
POLL = 50  # milliseconds: a question in each frame makes the page draw each frame, while it runs
LASTING = "/gradio_api/heartbeat/"  # open as long as the page is
# Features of the browser's own window, of which the first three start a process for each page, and
# those that Playwright turns off: a browser takes the last list only.
UNUSED = (
    "WebUIOmniboxPopup", "WebUIOmniboxAimPopup", "WebUIOmniboxFullPopup",
    "AvoidUnnecessaryBeforeUnloadCheckSync", "DestroyProfileOnBrowserClose", "HttpsUpgrades",
    "HttpsFirstBalancedModeAutoEnable", "LensOverlay", "MediaRouter", "OptimizationHints",
    "PaintHolding", "ThirdPartyStoragePartitioning",
)  # fmt: skip
IDLE = "new Promise((done) => requestIdleCallback(done))"
FRAMES = "new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))"
# Longer than a view waits before it asks for slices that the reader may want next.
LONGER = "new Promise((done) => setTimeout(() => requestIdleCallback(done), 300))"
# What a page that was used before can be given anew; other options make a page of its own.
MEDIA = {"color_scheme": "light", "reduced_motion": "no-preference", "forced_colors": "none"}
FORGET = "() => { localStorage.clear(); sessionStorage.clear(); }"


def chromium() -> str | None:
    """Path of a Chromium, if the machine has one."""
    return shutil.which("chromium") or shutil.which("chromium-browser")


def launch(play: Any) -> Any:
    """Start the machine's Chromium with Playwright."""
    args = ["--no-sandbox", "--disable-features=" + ",".join(UNUSED)]
    return play.chromium.launch(executable_path=chromium(), args=args)


@dataclass
class Watch:
    """What went wrong on a page while it was open, what it asked for and what it waits for."""

    errors: list[str] = field(default_factory=list)
    requests: list[str] = field(default_factory=list)
    unanswered: set[Any] = field(default_factory=set)

    def attach(self, page: Any) -> None:
        """Listen to the page's console, failures and requests."""
        for event, listener in self._listeners().items():
            page.on(event, listener)

    def detach(self, page: Any) -> None:
        """Listen no more."""
        for event, listener in self._listeners().items():
            page.remove_listener(event, listener)

    def _listeners(self) -> dict[str, Any]:
        return {
            "console": self._told, "pageerror": self._failed, "request": self._asked,
            "requestfinished": self._answered, "requestfailed": self._answered,
        }  # fmt: skip

    def _told(self, message: Any) -> None:
        if message.type == "error":
            self.errors.append(message.text)

    def _failed(self, error: Any) -> None:
        self.errors.append(str(error))

    def _answered(self, request: Any) -> None:
        self.unanswered.discard(request)

    def _asked(self, request: Any) -> None:
        self.requests.append(request.url)
        if LASTING not in request.url:
            self.unanswered.add(request)

    def offsite(self) -> list[str]:
        """Requests that left the machine."""
        near = ("http://127.0.0.1", "data:", "blob:")
        return [url for url in self.requests if not url.startswith(near)]


class RacePage:
    """The page as a person uses it."""

    def __init__(self, page: Any, watch: Watch) -> None:
        self.page, self.watch = page, watch
        page.set_default_timeout(PATIENCE)

    def open(self, url: str) -> RacePage:
        """Load the page and wait for its plan."""
        self.page.goto(url)
        self.page.wait_for_selector("#ds-race .ds")
        self.until(
            "document.querySelector('#ds-plan .ds-plan-row, #ds-plan [data-error]:not([hidden])')"
        )
        return self

    def until(self, script: str, arg: Any = None, timeout: int = PATIENCE) -> None:
        """Wait until a script returns something true."""
        self.page.wait_for_function(script, arg=arg, timeout=timeout, polling=POLL)

    def planned(self, words: str) -> None:
        """Wait until the plan, or the refusal in its place, says `words`: a page plans twice."""
        self.until("words => document.querySelector('#ds-plan').innerText.includes(words)", words)

    def settings(self, shown: bool = True) -> None:
        """Open or close the settings."""
        prompt = self.page.locator("#ds-prompt textarea")
        if prompt.is_visible() == shown:
            return
        self.page.locator("#ds-settings > button").click()
        prompt.wait_for(state="visible" if shown else "hidden")
        self.written()

    def written(self) -> None:
        """Wait until Gradio has written fields that just came: it does so once more, in a frame.

        It would write over what is typed before.
        """
        self.page.evaluate(FRAMES)
        for _ in range(5):
            self.page.evaluate(IDLE)

    def press(self, name: str) -> None:
        """Press one of Run, Pause, Step, Resume, Stop once it can be pressed."""
        self.page.locator(f"#ds-{name}:not([disabled])").click()

    def ready(self) -> None:
        """Wait until Run can be pressed."""
        self.page.locator("#ds-run:not([disabled])").wait_for()

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

    def wait_state(self, *states: str) -> None:
        """Wait until the race is in one of the states."""
        script = "s => s.includes(document.querySelector('#ds-race .ds').dataset.state)"
        self.until(script, list(states), 2 * PATIENCE)

    def wait_steps(self, steps: int) -> None:
        """Wait until the race runs and lane A has taken so many steps."""
        self.wait_state("running")
        self.until("n => +document.querySelector('#ds-race .ds').dataset.frameA >= n", steps)

    def pause_at(self, steps: int) -> None:
        """Run until lane A has taken so many steps, and pause."""
        self.press("run")
        self.wait_steps(steps)
        self.press("pause")
        self.wait_state("paused")

    @property
    def begun(self) -> int:
        """Runs and recordings that the page has asked for."""
        return sum("/queue/join" in url for url in self.watch.requests)

    def finish(self) -> None:
        """Run to the end, and until the page has asked for all that it does after a run."""
        self.press("run")
        self.over()
        self.wait_state(*FINAL)

    def over(self) -> None:
        """Wait until what was begun on the page is over and its buttons can be pressed again."""
        self.page.locator("#ds-race .ds[data-held=no]").wait_for(timeout=2 * PATIENCE)
        self.ready()
        self.settled()

    def settled(self) -> None:
        """Wait until the page has stood idle five times running and asks for nothing."""
        end, idle, asked = time.monotonic() + PATIENCE / 1000, 0, -1
        while idle < 5:
            if time.monotonic() > end:
                raise TimeoutError(f"unanswered: {[one.url for one in self.watch.unanswered]}")
            self.page.evaluate(IDLE)
            at_rest = not self.watch.unanswered and len(self.watch.requests) == asked
            idle = idle + 1 if at_rest else 0
            asked = len(self.watch.requests)

    def quiet(self) -> None:
        """Wait until the page asks for nothing, nor for what the reader may want next.

        The views of drift, similarity, queries and experts ask for the layers beside theirs once
        nothing is drawn for a while, so a page that has `settled` may still add a request.
        """
        asked = -1
        while asked < len(self.watch.requests):
            self.settled()
            asked = len(self.watch.requests)
            self.page.evaluate(LONGER)


@contextmanager
def touched(page: Any) -> Iterator[Callable[[Any], None]]:
    """Have a page as on a touch screen meanwhile; gives what taps an element."""
    screen = page.context.new_cdp_session(page)

    def tap(target: Any) -> None:
        target.scroll_into_view_if_needed()
        box = target.bounding_box()
        point = {"x": box["x"] + box["width"] / 2, "y": box["y"] + box["height"] / 2}
        for kind, points in (("touchStart", [point]), ("touchEnd", [])):
            screen.send("Input.dispatchTouchEvent", {"type": kind, "touchPoints": points})

    screen.send("Emulation.setTouchEmulationEnabled", {"enabled": True})
    try:
        yield tap
    finally:
        screen.send("Emulation.setTouchEmulationEnabled", {"enabled": False})
        screen.detach()


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
        browser = launch(play)
        yield browser
        browser.close()


@contextmanager
def opened(
    browser: Any, width: int = 1280, height: int = 900, **options: Any
) -> Iterator[RacePage]:
    """A page that no other test uses, with a cache of its own; it is closed in the end."""
    context = browser.new_context(viewport={"width": width, "height": height}, **options)
    with _watched(context.new_page()) as race:
        try:
            yield race
        finally:
            context.close()


@contextmanager
def _watched(page: Any) -> Iterator[RacePage]:
    """A page which may not have failed in the end, or asked another machine for a thing."""
    watch = Watch()
    watch.attach(page)
    yield RacePage(page, watch)
    assert watch.errors == []
    assert watch.offsite() == []


@pytest.fixture(scope="session")
def idle_pages():
    """Empty pages that no test uses; a load in one costs two thirds of that in a new page."""
    return []


@contextmanager
def lent(
    browser: Any, idle: list[Any], width: int = 1280, height: int = 900, **options: Any
) -> Iterator[RacePage]:
    """An empty page, which goes back to the idle ones unless it was closed.

    A page cannot be given every option anew, so there are `opened` ones for those that are left.
    """
    if options.keys() - MEDIA.keys() - {"permissions"}:
        with opened(browser, width, height, **options) as race:
            yield race
        return
    permissions = options.pop("permissions", None)
    page = idle.pop() if idle else browser.new_context().new_page()
    page.set_viewport_size({"width": width, "height": height})
    page.emulate_media(**MEDIA | options)
    if permissions:
        page.context.grant_permissions(permissions)
    with _watched(page) as race:
        try:
            yield race
        finally:
            race.watch.detach(page)
            if permissions:
                page.context.clear_permissions()
            if not page.is_closed():
                _empty(page)
                idle.append(page)


def _empty(page: Any) -> None:
    """Leave nothing in a page of what was done in it."""
    page.unroute_all()
    if page.url != "about:blank":
        page.evaluate(FORGET)
        page.goto("about:blank")
    page.mouse.move(0, 0)


@pytest.fixture
def new_page(browser, idle_pages):
    """Make pages that last for a test."""
    with ExitStack() as pages:
        yield lambda *size, **options: pages.enter_context(
            lent(browser, idle_pages, *size, **options)
        )


@pytest.fixture(scope="module")
def lasting_page(browser, idle_pages):
    """Make pages that the tests of a module share; each brings them into the state it needs."""
    with ExitStack() as pages:
        yield lambda *size, **options: pages.enter_context(
            lent(browser, idle_pages, *size, **options)
        )


@pytest.fixture(scope="session")
def viewing_page(app, browser, idle_pages):
    with lent(browser, idle_pages) as race:
        yield race.open(app.link())


@pytest.fixture(scope="module")
def viewer(viewing_page):
    """A page into which the tests of many modules bring their traces: a load costs seconds.

    At first its view is one that every trace has, for the open view asks for each new trace.
    """
    viewing_page.page.set_viewport_size({"width": 1440, "height": 1000})
    viewing_page.page.locator("#ds-race [data-tab=schedule]").click()
    yield viewing_page
    errors = viewing_page.watch.errors.copy()
    viewing_page.watch.errors.clear()  # they are not those of the next module
    assert errors == []


@pytest.fixture(scope="session")
def example_page(app, browser, idle_pages):
    with lent(browser, idle_pages, reduced_motion="reduce") as race:
        yield race.open(f"{app.url}/?__theme=light")


@pytest.fixture(scope="module")
def example(example_page):
    """A light page that shows the bundled example, with no token pinned, for many modules.

    They bring the cursor and the view that they need, and leave the views' controls as they were.
    """
    example_page.page.set_viewport_size({"width": 1440, "height": 900})
    example_page.page.locator("#ds-race [data-tab=schedule]").click()
    example_page.page.keyboard.press("Escape")
    yield example_page
    errors = example_page.watch.errors.copy()
    example_page.watch.errors.clear()  # they are not those of the next module
    assert errors == []
