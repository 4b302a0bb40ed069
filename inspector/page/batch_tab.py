"""The tab of many prompts: where they come from, the settings, buttons, and the results."""

from __future__ import annotations

from typing import Any

import gradio as gr
from gradio.components import Component

from inspector import static_files
from inspector.handlers.page_handlers import Handlers
from inspector.handlers.tasks.batch_handlers import BatchHandlers
from inspector.handlers.tasks.prompt_sources import TYPED
from inspector.page.prompt_widgets import build_source
from inspector.page.run_tab import FLAG, RAW, RunTab, note
from inspector.page.task_tab import build_buttons, wire_task
from inspector.protocol import Batches

LANES = [("Lane A of the Run tab", "a"), ("Lane B of the Run tab", "b")]
KEPT_INFO = (
    "A JSON list of objects with a name and the fields in which each differs from lane A, as "
    "for --specs of python -m engine batch."
)


def build_batch(
    demo: gr.Blocks, tabs: gr.Tabs, handlers: Handlers, batches: Batches, run: RunTab
) -> None:
    """Build the components and listeners of the tab; `run` takes the race of one prompt."""
    batch = BatchHandlers(handlers, batches)
    gr.Markdown(_about(batches.describe()))
    with gr.Row():
        with gr.Column(scale=3, min_width=300):
            source = build_source(handlers, batch.sources, "batch", TYPED, 20)
        with gr.Column(scale=2, min_width=280):
            settings = _settings(handlers, batch, batches.describe()["levels"])
    keys = build_buttons("batch", "Run")

    def rows(asked: Any) -> str:
        return batch.rows(asked)

    def aggregates(asked: Any) -> str:
        return batch.aggregates(asked)

    shown = gr.HTML(
        "", html_template=static_files.template("batch"), elem_id="ds-batch",
        server_functions=[rows, aggregates],
        **static_files.BARE | {"js_on_load": static_files.script("batch", ("race",))},
    )  # fmt: skip
    starters = {"run": batch.starter(None), "estimate": batch.starter(1)}
    widgets = [*source, *settings]
    wire_task(demo, tabs, handlers.form, batch, shown, keys, starters, widgets, run)


def _about(limits: dict[str, Any]) -> str:
    """What the tab is for, with the limits of this page."""
    text = (
        "Run many prompts under plain decoding and other settings, and see how far each setting "
        "agrees with plain decoding. Model, lengths and the other shared settings are those of "
        f"the Run tab. At most {limits['prompts']} prompts"
    )
    if limits["seconds"] is None:
        return text + "."
    return text + (
        f", {limits['settings']} settings, {limits['runs']} runs and {limits['seconds']:.0f} s at "
        "once on this public page; other visitors' runs take turns with yours."
    )


def _settings(handlers: Handlers, batch: BatchHandlers, levels: list[str]) -> list[Component]:
    """The widgets of the settings: lanes, kept ones and the recording level."""
    lanes = gr.CheckboxGroup(
        LANES, value=["b"], label="Compare with plain decoding", elem_id="ds-batch-lanes"
    )
    with gr.Row():
        name = gr.Textbox(
            label="Name of a kept setting", max_lines=1, max_length=80, elem_id="ds-batch-name"
        )
        keep = gr.Button("Keep lane B's method", elem_id="ds-batch-keep")
    said = note("ds-batch-said")
    with gr.Accordion("Kept settings", open=False, elem_id="ds-batch-kept-part"):
        kept = gr.Textbox("", lines=3, label="As JSON", info=KEPT_INFO, elem_id="ds-batch-kept")
    record = gr.Dropdown(
        ["off", *levels], value="off", label="Recording", elem_id="ds-batch-record",
        info="Runs everything again with the recorder on and averages what is recorded: drift and "
        "similarity, with probe also the error against an exact forward.",
    )  # fmt: skip
    given = [name, kept, handlers.form.values_copy]
    keep.click(**handlers.form.copy_listener).then(batch.keep, given, [kept, said], **RAW, **FLAG)
    return [lanes, kept, record]
