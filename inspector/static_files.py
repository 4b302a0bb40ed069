"""The page's templates, style sheets and bundled script, from the folder `static`.

The script is built from `inspector/web` and served once for all components.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Any

STATIC = Path(__file__).parent / "static"
BUNDLE = "page.js"
# Gradio runs a component's script as the body of a function with these five parameters. It offers
# listeners only for the events whose names it finds, in quotation marks, in that script.
LOADER = """
// Events: %(events)s
const root = (window.gradio_config?.root || location.origin).replace(/[/]?$/, "/");
import(new URL("%(path)s", root)).then(
  (page) => page.%(name)s({ element, props, trigger, watch, server }),
  () => { element.textContent = "The page's script could not be loaded; reload the page."; },
);
"""
SHEETS = (
    "page.css", "race.css", "inspect/inspect.css", "learn.css", "theorem.css", "methods.css",
    "batch.css", "advice.css", "glossary.css", "access.css",
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


def script(name: str, events: Iterable[str] = ()) -> str:
    """A component's script: it loads the page's bundle and calls its function `name`.

    `events` are the component's own events.
    """
    named = ", ".join(f'"{event}"' for event in events)
    return LOADER % {"path": bundle_path(), "name": name, "events": named}


@cache
def bundle_path() -> str:
    """The path of the bundle below the app's root; it changes when the bundle does."""
    digest = hashlib.sha256(text(BUNDLE).encode()).hexdigest()[:12]
    return f"driftscope/{BUNDLE}?v={digest}"


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


def css() -> str:
    """The page's style sheet, joined from its files."""
    return "\n".join(text(sheet) for sheet in SHEETS)
