"""Time and size of every view of a run of 8 billion parameters' size, in Chromium.

    python -m tests.proofs.view_times [LAYERS STEPS POSITIONS]

It serves such a run of `python -m engine synthetic` and prints one row a view: milliseconds until
the first figure and until all of them, the median and the most of changes of the layer, the largest
message and its parameters. No slice is measured twice, so that none comes from a cache; the page is
loaded anew for each view. The last line is the server's memory beyond that of a server with a small
run, as a multiple of the run's arrays. It fails if a view or the memory is beyond its bar.
"""

from __future__ import annotations

import argparse
import datetime
import os
import platform
import statistics
import sys
import tempfile
from importlib.metadata import version
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from tests.support.big_trace import make_synthetic_trace
from tests.support.browser import App, running_app
from tests.support.chromium import launch

SHAPE, SMALL = (32, 1024, 3072), (2, 16, 48)
VIEWS = (
    "drift", "similarity", "scatter", "schedule", "counts", "queries", "error", "lens", "time",
    "compare", "candidates", "what_if", "guider",
)  # fmt: skip
FIRST_MS, LAYER_MS, MAX_BYTES, MAX_MEMORY = 1_000, 300, 2_000_000, 1.2
LAYERS = 6  # changes of the layer that are measured
OPEN = """async ([view]) => {
  const root = document.querySelector("#ds-race [data-inspect]");
  const frame = () => new Promise((done) => requestAnimationFrame(done));
  const start = performance.now();
  let first = 0;
  root.querySelector(`[data-tab=${view}]`).click();
  for (;;) {
    const shown = root.querySelector(`.ds-view[data-view=${view}]:not([hidden])`);
    if (!first && shown?.querySelector("[data-figure][aria-busy=false]:not([hidden])"))
      first = performance.now() - start;
    if (root.dataset.ready === view) break;
    await frame();
  }
  await frame();
  return [first, performance.now() - start];
}"""
MOVE = """async ([layer]) => {
  const root = document.querySelector("#ds-race [data-inspect]");
  const slider = root.querySelector("[data-inspect-layer]");
  const frame = () => new Promise((done) => requestAnimationFrame(done));
  const start = performance.now();
  slider.value = layer;
  slider.dispatchEvent(new Event("input", { bubbles: true }));
  while (!root.dataset.ready) await frame();
  await frame();
  return performance.now() - start;
}"""


SIZES = """performance.getEntriesByType("resource")
  .filter(({ name }) => name.includes("/driftscope/slice?"))
  .map(({ name, decodedBodySize }) => [decodedBodySize, name])"""


def largest(page: Any) -> tuple[int, str]:
    """The bytes of the largest message of a page, uncompressed, and its parameters."""
    found = max(page.evaluate(SIZES), default=(0, ""))
    asked = parse_qsl(urlsplit(found[1]).query)
    told = [f"{name}={value}" for name, value in asked if name not in ("run", "version", "lane")]
    return found[0], " ".join(told)


def opened(browser: Any, app: App, view: str) -> Any:
    """A page that shows a view of the run."""
    page = browser.new_context(viewport={"width": 1440, "height": 1100}).new_page()
    page.goto(f"{app.url}/?look={view}")
    page.locator("#ds-race [data-inspect]").scroll_into_view_if_needed()
    page.wait_for_function("document.querySelector('#ds-race [data-inspect]').dataset.ready")
    return page


def measure(browser: Any, app: App, view: str, layers: int) -> dict[str, Any]:
    """The times and the largest message of a view."""
    page = opened(browser, app, "time" if view != "time" else "compare")
    page.evaluate("performance.clearResourceTimings()")
    first, whole = page.evaluate(OPEN, [view])
    page.wait_for_timeout(500)  # for the neighbours, which are read ahead of time
    chosen = [(3 + 5 * i) % layers for i in range(LAYERS)]
    moves = [page.evaluate(MOVE, [layer]) for layer in chosen]
    page.wait_for_timeout(200)
    size = largest(page)
    page.context.close()
    return {"first": first, "whole": whole, "moves": moves, "largest": size}


def about() -> str:
    """The machine, the date and the versions."""
    names = ("gradio", "numpy", "playwright")
    versions = ", ".join(f"{name} {version(name)}" for name in names)
    cores = len(os.sched_getaffinity(0))
    today = datetime.datetime.now(datetime.UTC).date()
    machine = f"{platform.machine()}, {cores} cores, load {os.getloadavg()[0]:.1f}"
    return f"{today}, {machine}, Python {platform.python_version()}, {versions}"


def main() -> int:
    """Print the table; the exit status is 1 if a view is beyond a bar."""
    from playwright.sync_api import sync_playwright

    parser = argparse.ArgumentParser(description=__doc__)
    for name, usual in zip(("layers", "steps", "positions"), SHAPE, strict=True):
        parser.add_argument(name, type=int, nargs="?", default=usual)
    shape = tuple(vars(parser.parse_args()).values())
    failed = False
    with tempfile.TemporaryDirectory() as name, sync_playwright() as play:
        folder, browser = Path(name), launch(play)
        with running_app(folder, command=serving(SMALL)) as app:
            opened(browser, app, "drift").context.close()
            small = app.held()
        with running_app(folder, command=serving(shape)) as app:
            print(f"{' x '.join(map(str, shape))}; {about()}; {browser.version}")
            held = app.held()
            print(
                "| view | first figure, ms | all, ms | layer: median, most, ms | largest message |"
            )
            print("|---|---|---|---|---|")
            for view in VIEWS:
                failed |= row(view, measure(browser, app, view, shape[0]))
            last = app.held()
        browser.close()
    arrays = sum(array.nbytes for array in make_synthetic_trace(*shape).arrays().values()) >> 20
    share = (last - small) / arrays
    print(
        f"server: {small} MB with a small run, {held} MB with this one, {last} MB after all views: "
        f"{share:.2f} times the run's {arrays} MB{' BEYOND' * (share > MAX_MEMORY)}"
    )
    return int(failed or share > MAX_MEMORY)


def serving(shape: tuple[int, ...]) -> tuple[str, ...]:
    """The command of an app that shows a run of this shape."""
    return "-m", "tests.support.big_app", *map(str, shape)


def row(view: str, found: dict[str, Any]) -> bool:
    """Print the row of a view, and return whether it is beyond a bar."""
    middle, most = statistics.median(found["moves"]), max(found["moves"])
    size, asked = found["largest"]
    beyond = found["first"] > FIRST_MS or middle > LAYER_MS or size > MAX_BYTES
    print(
        f"| {view}{' BEYOND' * beyond} | {found['first']:.0f} | {found['whole']:.0f} | "
        f"{middle:.0f}, {most:.0f} | {size / 1e3:.0f} kB {asked} |", flush=True,
    )  # fmt: skip
    return bool(beyond)


if __name__ == "__main__":
    sys.exit(main())
