"""The page's templates, scripts and style sheets, assembled from the folder `static`."""

from __future__ import annotations

import json
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Any

STATIC = Path(__file__).parent / "static"
VIEWS = (
    "drift", "similarity", "counts", "schedule", "queries", "error", "scatter", "time", "compare",
    "candidates", "guider", "card",
)  # fmt: skip
INSPECT = (
    "inspect/codes.js",
    "inspect/cursor.js",
    "inspect/pen.js",
    "inspect/heat.js",
    "inspect/plot.js",
    "inspect/legend.js",
    "inspect/reading.js",
    "inspect/figure.js",
    "inspect/panel.js",
    "inspect/tally.js",
    "inspect/why.js",
    "inspect/ruling.js",
    "inspect/acceptance.js",
    *(f"inspect/views/{name}.js" for name in VIEWS),
    "inspect/inspector.js",
)
RACE = (
    "format.js",
    "glossary.js",
    "store.js",
    "tokens.js",
    "charts.js",
    "report.js",
    "fetch.js",
    "speech.js",
    "dropdown.js",
    "focus.js",
    "transport.js",
    *INSPECT,
    "link.js",
    "run_card.js",
    "race.js",
)
SCRIPTS = {
    "plan": ("format.js", "glossary.js", "plan.js"),
    "preset": ("preset.js",),
    "race": RACE,
    "replay": ("replay.js", *RACE),
    "learn": (*RACE, "learn.js"),
    "theorem": ("format.js", "charts.js", "theorem_plots.js", "theorem.js"),
    "methods": ("format.js", "glossary.js", "methods.js"),
}
SHEETS = (
    "page.css", "race.css", "inspect/inspect.css", "learn.css", "theorem.css", "methods.css",
    "glossary.css", "access.css",
)  # fmt: skip
BARE: dict[str, Any] = {"apply_default_css": False, "js_on_load": None}


@cache
def text(name: str) -> str:
    """The text of a static file."""
    return (STATIC / name).read_text(encoding="utf-8")


def template(name: str) -> str:
    """A component's template, with the templates of the race and the inspector inserted."""
    whole = text(f"{name}.html").replace("<!-- race -->", text("race.html"))
    return whole.replace("<!-- inspector -->", text("inspect/inspect.html"))


def script(name: str) -> str:
    """A component's script, joined from its files."""
    return "\n".join(_script_part(part) for part in SCRIPTS[name])


def glossary() -> dict[str, dict[str, Any]]:
    """The glossary: each term's `title`, `text` and `forms`, the words that link to it."""
    return json.loads(text("glossary.json"))


def term_links(names: Iterable[str]) -> str:
    """HTML of buttons that open the glossary at the terms `names`."""
    return ", ".join(
        f'<button type="button" class="ds-term" data-term="{name}" aria-haspopup="dialog">'
        f"{glossary()[name]['title'].lower()}</button>"
        for name in names
    )


def _script_part(name: str) -> str:
    """A script file; the glossary's is preceded by its data."""
    data = f"const GLOSSARY = {text('glossary.json')};\n" if name == "glossary.js" else ""
    return data + text(name)


def css() -> str:
    """The page's style sheet, joined from its files."""
    return "\n".join(text(sheet) for sheet in SHEETS)
