"""Widgets for the prompts of a tab: typed text, a JSONL file, or problems of a family."""

from __future__ import annotations

from typing import Any

import gradio as gr
from gradio.components import Component

from engine.config.spec import MAX_SHOTS
from inspector.handlers.page_handlers import Handlers
from inspector.handlers.tasks.prompt_sources import FILE, PROBLEMS, TYPED, PromptSources
from inspector.page.run_tab import FLAG, PRIVATE, RAW

SOURCES = [("Typed, one a line", TYPED), ("A JSONL file", FILE), ("Problems of a family", PROBLEMS)]
FORMAT = 'Each line is an object like {"prompt": "…", "answer": "…"}; the answer may be left out.'


def build_source(
    handlers: Handlers, sources: PromptSources, tab: str, first: str, problems: int
) -> list[Component]:
    """The widgets source, text, family, count, worked examples and seed.

    `tab` begins the elements' names, `first` is the source that is chosen at first, `problems` the
    number of problems of a family.
    """
    source = gr.Radio(SOURCES, value=first, label="Prompts", elem_id=f"ds-{tab}-source")
    text = gr.Textbox(
        "\n".join(row["prompt"] for row in handlers.session.examples()[1:4]), lines=6,
        max_lines=14, label="One prompt in each line", visible=first == TYPED,
        elem_id=f"ds-{tab}-prompts",
    )  # fmt: skip
    with gr.Column(visible=first == FILE) as uploaded:
        given = gr.File(label="Prompts (.jsonl)", file_types=[".jsonl"], elem_id=f"ds-{tab}-file")
        note = gr.Textbox(label="File", info=FORMAT, interactive=False, elem_id=f"ds-{tab}-note")
    families = handlers.session.families(handlers.form.catalog.default.a.model)
    with gr.Row(visible=first == PROBLEMS) as drawn:
        family = gr.Dropdown(
            families, value=families[0][1], label="Family", elem_id=f"ds-{tab}-family"
        )
        count = gr.Number(problems, label="Problems", precision=0, elem_id=f"ds-{tab}-count")
        shots = gr.Slider(
            0, MAX_SHOTS, handlers.session.default_shots(), step=1, label="Worked examples",
            elem_id=f"ds-{tab}-shots",
        )  # fmt: skip
        seed = gr.Number(0, label="Seed of the problems", precision=0, elem_id=f"ds-{tab}-seed")

    def choose(name: Any) -> list[Any]:
        return [gr.update(visible=name == one) for one in (TYPED, FILE, PROBLEMS)]

    model = handlers.form.widgets["model"]
    model.change(handlers.offer_families, [model, family], family, **RAW, **FLAG)  # type: ignore[attr-defined]
    source.change(choose, source, [text, uploaded, drawn], **RAW, **FLAG)
    given.upload(sources.take_file, given, note, concurrency_limit=2, **PRIVATE)
    given.clear(sources.take_file, given, note, **PRIVATE)
    return [source, text, family, count, shots, seed]
