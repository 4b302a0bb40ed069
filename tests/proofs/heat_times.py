"""Draw a heat map of 3,072 by 1,024 cells in a headless Chromium and print how long it takes.

    python -m tests.proofs.heat_times

It needs Node's packages in `inspector/web` (`npm ci`). Of each kind of draw it prints the shortest
and the median time, and the CPU time of the page's process per draw, which other programs on the
machine hardly change. The exit status is 1 if another layer takes 50 ms of CPU time or more.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from statistics import median

from playwright.sync_api import Page, sync_playwright

from tests.support.browser import ROOT
from tests.support.chromium import launch

WEB = ROOT / "inspector" / "web"
BUNDLE = WEB / "build" / "heat_times.js"
SCREENS = ((1280, 1), (1280, 2), (2560, 1))
RUNS = 20
LIMIT = 50
FIRST = "another layer, largest"


def main() -> int:
    """Measure on every screen; returns the exit status."""
    argparse.ArgumentParser(description=__doc__).parse_args()
    esbuild = [str(WEB / "node_modules/.bin/esbuild"), "tests/heat_times.ts", "--bundle"]
    subprocess.run([*esbuild, "--log-level=warning", f"--outfile={BUNDLE}"], cwd=WEB, check=True)
    slow = False
    print("| screen | drawn | shortest, ms | median, ms | CPU, ms |\n|---|---|---|---|---|")
    with sync_playwright() as play:
        browser = launch(play)
        for width, dense in SCREENS:
            page = browser.new_page(
                viewport={"width": width, "height": 900}, device_scale_factor=dense
            )
            page.add_script_tag(path=str(BUNDLE))
            for drawn in page.evaluate("Object.keys(heatTimes)"):
                times, cpu = measured(page, drawn)
                print(
                    f"| {width} px, {dense}x | {drawn} | {min(times):.1f} | "
                    f"{median(times):.1f} | {cpu:.1f} |"
                )
                slow |= drawn == FIRST and cpu >= LIMIT
            page.close()
        browser.close()
    return int(slow)


def measured(page: Page, drawn: str) -> tuple[list[float], float]:
    """The milliseconds of some draws after a few that do not count, and the CPU time of one."""
    metrics = page.context.new_cdp_session(page)
    metrics.send("Performance.enable")

    def cpu() -> float:
        found = metrics.send("Performance.getMetrics")["metrics"]
        return float(next(one["value"] for one in found if one["name"] == "ProcessTime"))

    page.evaluate("name => heatTimes[name](4)", drawn)
    before = cpu()
    times = page.evaluate("([name, runs]) => heatTimes[name](runs)", [drawn, RUNS])
    return times, 1000 * (cpu() - before) / RUNS


if __name__ == "__main__":
    sys.exit(main())
