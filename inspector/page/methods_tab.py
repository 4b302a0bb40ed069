"""The Methods tab: one page for each method in the catalog."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import gradio as gr

from engine.config.spec import RunSpec
from inspector import static_files
from inspector.page_data import method_pages as view
from inspector.page_data.messages import to_json

log = logging.getLogger("driftscope")


def build_methods(catalog: Mapping[str, Any], plain: RunSpec, results: Path | None = None) -> None:
    """Build the tab's component; call inside `gr.Tab`.

    `catalog` is the session's, `plain` the plain decoding against which a method is tried.
    `results` is the file `results.json` written by `python -m engine tables`. Without it, or if it
    cannot be read, the pages show no measurements made with this repository.
    """
    pages = to_json(view.document(catalog, plain, _read(results)))

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
