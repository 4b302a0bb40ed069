"""axe-core on a page of the app: what it finds, with where and why."""

from __future__ import annotations

from typing import Any

from axe_playwright_python.base import AXE_SCRIPT

GRAVE = ("moderate", "serious", "critical")
SCAN = """([where, rules]) => axe.run(where ? document.querySelector(where) : document,
  { resultTypes: ['violations'], rules }).then(({ violations }) => violations)"""


def findings(page: Any, where: str = "", contrast: bool = True) -> list[str]:
    """What axe-core finds of moderate impact and above, on the page or in one element.

    Targets of less than 24 px are looked for too, which axe-core leaves out unless told.
    `contrast`: also each text's, which takes most of the time.
    """
    if not page.evaluate("Boolean(window.axe)"):
        page.evaluate(AXE_SCRIPT)
    rules = {"target-size": {"enabled": True}, "color-contrast": {"enabled": contrast}}
    return [
        f"{found['id']} ({found['impact']}): {node['html'][:200]}"
        for found in page.evaluate(SCAN, [where, rules])
        if found["impact"] in GRAVE
        for node in found["nodes"]
    ]
