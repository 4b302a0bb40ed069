"""The Learn tab: lessons on recorded runs, the theorem widget, and the embedded models."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gradio as gr

from inspector import static_files
from inspector.handlers.lesson_service import LessonService
from inspector.handlers.page_handlers import Handlers
from inspector.handlers.view_service import ViewService
from inspector.page.embedded_suite import build_embedded_suite
from inspector.page.theorem import build_theorem


def build_learn(handlers: Handlers, folder: Path) -> None:
    """Build the components of the tab; `folder` has the traces of the lessons."""
    lessons, views = LessonService(handlers, folder), ViewService(handlers)

    def titles(asked: Any) -> str:
        return lessons.titles()

    def lesson(asked: Any) -> str:
        return lessons.lesson(asked)

    def check(asked: Any) -> str:
        return lessons.check(asked)

    def view(asked: Any) -> str:
        return views.document(asked)

    gr.HTML(
        "", html_template=static_files.template("learn"), elem_id="ds-learn",
        server_functions=[titles, lesson, check, view],
        **static_files.BARE | {"js_on_load": static_files.script("learn")},
    )  # fmt: skip
    gr.Markdown("## When is parallel decoding safe?")
    build_theorem()
    build_embedded_suite(handlers)
