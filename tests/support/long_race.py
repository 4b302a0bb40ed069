"""A race of the size that an 8B model runs, as messages, and a page that shows it without a server.

The prompt has 2,048 tokens and the answer 1,024. Lane A reveals one token a step, lane B four.
"""

from __future__ import annotations

import json
import random
from typing import Any

from inspector import static_files

PROMPT, ANSWER, BLOCK = 2048, 1024, 32
VOCABULARY = 500
TOKENS_A_STEP = {"a": 1, "b": 4}
WORDS = (" the", " value", " of", " nuts", " is", " 45", ",", ".", "\n", " dollars", " therefore")
# The page as Gradio holds it, with a component whose value the test sets.
PAGE = """<!DOCTYPE html><html lang="en"><head><meta charset="utf-8"><style>%(css)s</style></head>
<body class="%(theme)s" style="background: var(--ds-page)"><main class="gradio-container">
<div class="fillable"><div id="ds-race">%(race)s</div></div></main></body></html>"""
START = """async ([script, value]) => {
  const page = await import(URL.createObjectURL(new Blob([script], { type: "text/javascript" })));
  const element = document.querySelector("#ds-race");
  let react = () => undefined;
  const props = { value };
  const watch = (name, changed) => (react = changed);
  const missing = async () => JSON.stringify({ missing: "There is no server." });
  const server = { replay: async () => props.value, view: missing };
  page.race({ element, props, watch, server, trigger: () => undefined });
  window.take = (text) => { props.value = text; react(); };
}"""


def lane_start(lane: str) -> dict[str, Any]:
    """A lane before its first step."""
    return {
        "title": f"Long lane {lane.upper()}", "prompt": [i % VOCABULARY for i in range(PROMPT)],
        "canvas": {}, "given": [], "length": ANSWER, "block": BLOCK, "record": "off",
        "mask": VOCABULARY, "stop": [VOCABULARY + 1], "model": "synthetic",
        "environment": "no machine", "memory": "", "lacks": [],
    }  # fmt: skip


def lane_rows(lane: str) -> list[list[Any]]:
    """The steps of a lane: each block in a random order."""
    chance, rows, left = random.Random(7), [], ANSWER
    count = TOKENS_A_STEP[lane]
    for block in range(ANSWER // BLOCK):
        order = list(range(block * BLOCK, (block + 1) * BLOCK))
        chance.shuffle(order)
        for low in range(0, BLOCK, count):
            own = order[low : low + count]
            left -= len(own)
            commits = [(place, place % VOCABULARY, chance.randrange(300, 1000)) for place in own]
            flat = [value for commit in commits for value in commit]
            rows.append([len(rows), block, 1, 96, 1, left, 50.0, flat])
    return rows


def pieces() -> dict[str, str]:
    """The texts of all tokens."""
    return {str(i): WORDS[i % len(WORDS)] for i in range(VOCABULARY)}


def whole() -> str:
    """The whole race as one message."""
    lanes = {
        lane: {"start": lane_start(lane), "rows": lane_rows(lane), "pieces": pieces()}
        for lane in "ab"
    }
    return _json({"run": "long", "state": "done", "reset": True, "lanes": lanes})


def messages(steps: int) -> list[str]:
    """The messages of a running race, each with `steps` more steps of both lanes."""
    starts = {lane: {"start": lane_start(lane), "pieces": pieces()} for lane in "ab"}
    out = [{"run": "long", "state": "running", "reset": True, "lanes": starts}]
    rows = {lane: lane_rows(lane) for lane in "ab"}
    for low in range(0, max(map(len, rows.values())), steps):
        news = {lane: {"rows": own[low : low + steps]} for lane, own in rows.items()}
        out.append({"run": "long", "state": "running", "reset": False, "lanes": news})
    return [_json(message) for message in out]


def show(page: Any, value: str, theme: str = "") -> None:
    """Show a race on a blank page; `window.take` then takes further messages."""
    style = static_files.css() + static_files.text("replay.css")
    parts = {"css": style, "race": static_files.template("race"), "theme": theme}
    page.set_content(PAGE % parts)
    page.evaluate(START, [static_files.text("page.js"), value])


def _json(document: dict[str, Any]) -> str:
    return json.dumps(document, separators=(",", ":"))
