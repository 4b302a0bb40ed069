"""Frames a second that Chromium draws while a race of an 8B model's size runs.

    python -m tests.proofs.race_frames

The page of tests/support/long_race.py takes a message of the race every MESSAGE_MS milliseconds, as
from a server. It prints frames a second, the share of frames that were late, the longest time
between two frames and the time from a message to the frame after it, wide and narrow. The exit
status is 1 if fewer than LEAST frames a second were drawn.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
from itertools import pairwise
from typing import Any

from playwright.sync_api import sync_playwright

from tests.support import long_race
from tests.support.chromium import launch

STEPS, MESSAGE_MS, MESSAGES = 2, 100, 100
LATE_MS, LEAST = 25, 58
SCREENS = ((1440, 900), (390, 800))
RUN = """async ([texts, every]) => {
  const times = [], works = [];
  const channel = new MessageChannel();
  let running = true, asked = 0;
  const frame = (now) => { times.push(now); if (running) requestAnimationFrame(frame); };
  requestAnimationFrame(frame);
  channel.port1.onmessage = () => works.push(performance.now() - asked);
  for (const text of texts) {
    asked = performance.now();
    window.take(text);
    requestAnimationFrame(() => channel.port2.postMessage(0));  // answered after the frame
    await new Promise((done) => setTimeout(done, every));
  }
  running = false;
  return [times, works];
}"""


def measured(page: Any) -> tuple[float, float, float, float]:
    """Frames a second, share of late ones, longest gap and median ms from message to frame."""
    first, *more = long_race.messages(STEPS)
    long_race.show(page, first)
    times, works = page.evaluate(RUN, [more[:MESSAGES], MESSAGE_MS])
    gaps = [after - before for before, after in pairwise(times)]
    late = sum(gap > LATE_MS for gap in gaps) / len(gaps)
    return 1000 * len(gaps) / sum(gaps), late, max(gaps), statistics.median(works)


def main() -> int:
    """Measure on both screens; returns the exit status."""
    argparse.ArgumentParser(description=__doc__).parse_args()
    slow = False
    with sync_playwright() as play:
        browser = launch(play)
        load = os.getloadavg()[0]
        print(f"{browser.version}, {len(os.sched_getaffinity(0))} cores, load {load:.1f}")
        print("| screen | frames/s | late | longest gap, ms | message to frame, ms |")
        print("|---|---|---|---|---|")
        for width, height in SCREENS:
            page = browser.new_page(viewport={"width": width, "height": height})
            rate, late, longest, work = measured(page)
            slow |= rate < LEAST
            print(f"| {width} | {rate:.1f} | {100 * late:.1f} % | {longest:.0f} | {work:.1f} |")
            page.close()
        browser.close()
    return int(slow)


if __name__ == "__main__":
    sys.exit(main())
