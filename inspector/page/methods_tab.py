"""The Methods tab: one page for each method in the catalog."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any

import gradio as gr

from inspector import static_files
from inspector.handlers.page_handlers import Handlers
from inspector.page_data import method_pages as view
from inspector.page_data.messages import to_json

log = logging.getLogger("driftscope")


def build_methods(handlers: Handlers, results: Path | None = None) -> None:
    """Build the tab's component; call inside `gr.Tab`.

    `results` is the file `results.json` written by `python -m engine tables`. Without it, or if it
    cannot be read, the pages show no measurements made with this repository.
    """
    plain = handlers.session.default_race().a
    pages = to_json(view.document(handlers.session.catalog(), plain, _read(results)))

    def methods(asked: Any) -> str:
        return pages

    gr.HTML(
        "", html_template=static_files.template("methods"), elem_id="ds-methods",
        server_functions=[methods],
        **static_files.BARE | {"js_on_load": static_files.script("methods")},
    )  # fmt: skip


def _read(path: Path | None) -> Any:
    if path is None or not path.is_file():
        return None
    try:
        return json.loads(path.read_text("utf-8"))
    except ValueError as error:
        log.warning("the table of measurements cannot be read: %s", error)
        return None
