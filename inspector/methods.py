"""The Methods tab: a page for every method of the catalog."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any

import gradio as gr

from inspector.handlers import Handlers, dump
from inspector.views import methods as view
from inspector.views import theme

log = logging.getLogger("driftscope")


def build_methods(handlers: Handlers, table: Path | None = None) -> None:
    """The tab's component; call inside `gr.Tab`.

    `table` is the `table.json` that `engine.evaluate --specs` wrote; without one, or with one that
    cannot be read, the pages show no measurements of this repository's own.
    """
    plain = handlers.session.default_race().a
    pages = dump(view.document(handlers.session.catalog(), plain, _read(table)))

    def methods(asked: Any) -> str:
        return pages

    gr.HTML(
        "", html_template=theme.template("methods"), elem_id="ds-methods",
        server_functions=[methods],
        **theme.BARE | {"js_on_load": theme.script("methods")},
    )  # fmt: skip


def _read(path: Path | None) -> Any:
    if path is None or not path.is_file():
        return None
    try:
        return json.loads(path.read_text("utf-8"))
    except ValueError as error:
        log.warning("the table of measurements cannot be read: %s", error)
        return None
