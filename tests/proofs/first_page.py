"""Load the page for the first time in a headless Chromium and print what travels.

    python -m tests.proofs.first_page [CHECKOUT]

It starts the app of this repository, or of another checkout of it, and beside it an empty page of
the same Gradio. Bytes are counted as they travel, compressed where the server compresses. The exit
status is 1 if the page needs 700 KB or more beyond the empty one.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from importlib.metadata import version
from pathlib import Path

from playwright.sync_api import Browser, sync_playwright

from tests.support.browser import ROOT, running_app
from tests.support.chromium import launch

LIMIT = 700_000
AT_REST_MS = 5_000
EMPTY = "import gradio as gr\nwith gr.Blocks() as demo:\n    gr.Markdown('Empty')\ndemo.launch()\n"


def main(given: list[str] | None = None) -> int:
    """Measure both pages; returns the exit status."""
    parser = argparse.ArgumentParser(description="what the first page weighs")
    parser.add_argument("checkout", nargs="?", type=Path, default=ROOT)
    checkout = parser.parse_args(given).checkout.resolve()
    commit = ["git", "-C", str(checkout), "rev-parse", "--short", "HEAD"]
    named = subprocess.run(commit, capture_output=True, text=True, check=True).stdout.strip()
    print(f"commit {named}, gradio {version('gradio')}\n")
    print("| page | files | KB | largest |\n|---|---|---|---|")
    with sync_playwright() as play, tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "app.py").write_text(EMPTY)
        browser = launch(play)
        empty = shown("an empty page", browser, Path(folder))
        own = shown("Driftscope", browser, checkout)
        browser.close()
    print(f"\nbeyond an empty page: {(own - empty) / 1000:.0f} KB")
    return int(own - empty >= LIMIT)


def shown(name: str, browser: Browser, root: Path) -> int:
    """Print the row of the page that `root`'s app serves; returns its bytes."""
    with tempfile.TemporaryDirectory() as folder, running_app(Path(folder), root) as app:
        files = travelled(browser, app.url)
    total = sum(files.values())
    most = sorted(files, key=lambda path: -files[path])[:3]
    largest = ", ".join(f"{path} {files[path] / 1000:.0f} KB" for path in most)
    print(f"| {name} | {len(files)} | {total / 1000:.0f} | {largest} |")
    return total


def travelled(browser: Browser, url: str) -> dict[str, int]:
    """The bytes of each response, with its headers, until the page is at rest."""
    context = browser.new_context(viewport={"width": 1280, "height": 900})
    page = context.new_page()
    session = context.new_cdp_session(page)
    names: dict[str, str] = {}
    files: dict[str, int] = {}

    def ended(event: dict) -> None:
        name = names.get(event["requestId"], "other")
        files[name] = files.get(name, 0) + int(event["encodedDataLength"])

    session.on(
        "Network.requestWillBeSent",
        lambda event: names.update({event["requestId"]: short(event["request"]["url"], url)}),
    )
    session.on("Network.loadingFinished", ended)
    session.send("Network.enable")
    page.goto(url, wait_until="load")
    page.wait_for_timeout(AT_REST_MS)
    context.close()
    return files


def short(address: str, url: str) -> str:
    """The path of a request, without its query."""
    return address.removeprefix(url).partition("?")[0][:80]


if __name__ == "__main__":
    sys.exit(main())
