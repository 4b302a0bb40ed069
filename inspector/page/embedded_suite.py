"""The part of the Learn tab on the embedded models: problems, training curves and limits."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import gradio as gr

from inspector.handlers.page_handlers import Handlers
from inspector.page_data.charts import loss_figure

INTRODUCTION = """
The models that ship with Driftscope are small enough to run anywhere. They serve only to show how
diffusion decoding works. Each family has an exam: one problem structure in ten, which training
leaves out. A structure is what is left of a problem without names, things and wording. Short word
problems are split by their text instead. Up to one in twenty of those in the exam was in the
training data, as a chained word problem.
"""


def build_embedded_suite(handlers: Handlers) -> None:
    """Build the accordion; nothing if no model of the session has a training history."""
    found = handlers.session.embedded_suite()
    if not found["models"]:
        return
    title = "The embedded models and the problems that they know"
    with gr.Accordion(title, open=False, elem_id="ds-suite"):
        gr.Markdown(INTRODUCTION + "\n\n".join(map(_family, found["families"])))
        gr.Markdown(f"### How they were trained\n\n{_training(found['models'])}")
        drawn = [one for one in found["models"] if one["curve"]]
        if drawn:  # a training of a few steps has no curve
            gr.Plot(loss_figure(drawn), show_label=False, elem_id="ds-suite-curve")
        gr.Markdown(f"### Limits of each model\n\n{found['limits']}")


def _family(family: Mapping[str, str]) -> str:
    question = family["question"].replace("\n", "  \n> ")
    return f"### {family['label']}\n\n{family['text']}\n\n> {question}\n>\n> *{family['answer']}*"


def _training(models: Sequence[Mapping[str, Any]]) -> str:
    rows = [
        "| `{}` | {:.0f} million | {} | {} |".format(
            one["name"], one["tokens"] / 1e6, *one["minutes"]
        )
        for one in models
    ]
    note = "\nThe training of the model from which a model was initialised is included."
    return "\n".join(
        [
            "| model | tokens | minutes on a CPU | on a GPU |",
            "|---|---|---|---|",
            *rows,
            note,
        ]
    )
