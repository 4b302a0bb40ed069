"""Check the whole page with axe-core: `python -m tests.proofs.accessibility`.

Covers every tab, view, method and lesson, before and after a run and with a refused plan, in both
themes, 1440 and 390 px wide. Prints each finding of moderate impact and above; fails on any.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from playwright.sync_api import sync_playwright

from tests.support.axe import findings
from tests.support.browser import running_app
from tests.support.chromium import RacePage, Watch, launch
from tests.support.looking import recolour, show

LOOKS = [(width, dark) for width in (1440, 390) for dark in (False, True)]


def looks(page: Any, name: str, where: str = "") -> Iterator[tuple[str, list[str]]]:
    """The findings of a state of the page, for each width and theme."""
    for width, dark in LOOKS:
        page.set_viewport_size({"width": width, "height": 900})
        recolour(page, dark)
        page.evaluate("scrollTo(0, 0)")  # elsewhere the bar that stays in sight lies over others
        yield f"{name}, {width} px, {'dark' if dark else 'light'}", findings(page, where)
    page.set_viewport_size({"width": LOOKS[0][0], "height": 900})


def run_tab(race: RacePage, link: str) -> Iterator[tuple[str, list[str]]]:
    """The recorded example, a run with every section open, each of its views, a refused plan."""
    page = race.page
    yield from looks(page, "Run, the example")
    race.open(link).finish()
    for name in ("settings", "files"):
        page.locator(f"#ds-{name} > button").click()
    page.locator("#ds-export").click()
    for summary in page.locator("#ds-race details > summary").all():
        summary.click()
    race.settled()
    yield from looks(page, "Run, a run, all opened")
    page.locator("#ds-race [data-record=probe]").click()
    race.over()
    page.locator("#ds-race [data-lane=b] .ds-cell").nth(3).click()
    for tab in page.locator("#ds-race [data-tab]").all():
        name = tab.get_attribute("data-tab") or ""
        show(race, name)
        yield from looks(page, f"Run, view {name}", "#ds-race [data-inspect]")
    page.locator("#ds-block_length input").fill("7")
    page.locator("#ds-plan [data-error]:not([hidden])").wait_for()
    yield from looks(page, "Run, refused", "#ds-plan")


def other_tabs(race: RacePage) -> Iterator[tuple[str, list[str]]]:
    """Every lesson after Check without an answer, the teacher's page, the page of every method."""
    page = race.page
    page.get_by_role("tab", name="Learn", exact=True).click()
    for key in page.locator("[data-lessons] button").all():
        key.click()
        race.settled()
        if page.locator("#ds-learn [data-teachers]").is_hidden():
            page.locator(f"#ds-learn [data-lesson={key.get_attribute('data-key')}]").wait_for()
            page.locator("[data-lesson-check]").click()
            page.locator("[data-lesson-verdict]:not(:empty)").wait_for()
        yield from looks(page, f"Learn, {key.inner_text()}")
    page.get_by_role("tab", name="Methods", exact=True).click()
    for key in page.locator("[data-method-list] button").all():
        key.click()
        yield from looks(page, f"Methods, {key.inner_text()}", "#ds-methods")


def main() -> int:
    """Check everything; returns 1 if there is any finding."""
    argparse.ArgumentParser(description=__doc__).parse_args()
    seen = bad = 0
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as play:
        browser = launch(play)
        with running_app(Path(folder)) as app:
            context = browser.new_context(reduced_motion="reduce")
            race = RacePage(context.new_page(), Watch())
            race.watch.attach(race.page)
            race.open(app.url)
            for states in (run_tab(race, app.link()), other_tabs(race)):
                for name, found in states:
                    seen, bad = seen + 1, bad + len(found)
                    for one in found:
                        print(f"{name}: {one}", flush=True)
        browser.close()
    print(f"{seen} states checked, {bad} findings")
    return int(bool(bad))


if __name__ == "__main__":
    sys.exit(main())
