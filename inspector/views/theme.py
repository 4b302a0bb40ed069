"""Colours, styles, templates and scripts of the page, read from `static` beside it."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import gradio as gr

STATIC = Path(__file__).parents[1] / "static"
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
    "plan": ("format.js", "plan.js"),
    "preset": ("preset.js",),
    "race": RACE,
    "replay": ("replay.js", *RACE),
    "learn": (*RACE, "learn.js"),
    "theorem": ("format.js", "charts.js", "theorem_plots.js", "theorem.js"),
    "methods": ("format.js", "methods.js"),
}
SHEETS = (
    "page.css", "race.css", "inspect/inspect.css", "learn.css", "theorem.css", "methods.css",
    "access.css",
)  # fmt: skip
BARE: dict[str, Any] = {"apply_default_css": False, "js_on_load": None}
FONT = ("system-ui", "-apple-system", "Segoe UI", "Roboto", "sans-serif")
MONO = ("ui-monospace", "SFMono-Regular", "Menlo", "Consolas", "monospace")


@cache
def static(name: str) -> str:
    """The text of a static file."""
    return (STATIC / name).read_text(encoding="utf-8")


def template(name: str) -> str:
    """A component's template, with the race's and the inspector's in their places."""
    whole = static(f"{name}.html").replace("<!-- race -->", static("race.html"))
    return whole.replace("<!-- inspector -->", static("inspect/inspect.html"))


def script(name: str) -> str:
    """A component's script, whole."""
    return "\n".join(static(part) for part in SCRIPTS[name])


def css() -> str:
    """The page's style sheet."""
    return "\n".join(static(sheet) for sheet in SHEETS)


def theme() -> gr.themes.Base:
    """Gradio's base theme with local fonts and a green that reads on white."""
    made = gr.themes.Base(
        primary_hue="emerald", neutral_hue="slate", radius_size="md", font=FONT, font_mono=MONO
    )
    return made.set(
        button_primary_background_fill="#0b6e54",
        button_primary_background_fill_hover="#095b46",
        button_primary_background_fill_dark="#0b6e54",
        button_primary_background_fill_hover_dark="#0d8466",
        button_primary_text_color="#ffffff",
        button_primary_text_color_dark="#ffffff",
        body_text_color_subdued="#4d5867",
        body_text_color_subdued_dark="#b3bdca",
    )
