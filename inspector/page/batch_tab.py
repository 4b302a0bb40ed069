"""The tab of many prompts: where they come from, the settings, buttons, and the results."""

from __future__ import annotations

from typing import Any

import gradio as gr
from gradio.components import Component

from inspector import static_files
from inspector.handlers.page_handlers import RUNS, Handlers
from inspector.handlers.tasks.batch_handlers import BatchHandlers
from inspector.handlers.tasks.prompt_sources import TYPED
from inspector.handlers.tasks.task_handlers import BUTTONS
from inspector.page.kept_form import keep_values
from inspector.page.prompt_widgets import build_source
from inspector.page.run_tab import FLAG, PRIVATE, RAW, RunTab, note
from inspector.protocol import Batches

LANES = [("Lane A of the Run tab", "a"), ("Lane B of the Run tab", "b")]
LABELS = {"run": "Run", "estimate": "Estimate the time", "continue": "Continue", "stop": "Stop"}
REOPEN_JS = "() => [sessionStorage.getItem('driftscope-batch') || '']"
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
    with gr.Row(elem_id="ds-batch-buttons"):
        keys = {
            name: gr.Button(
                LABELS[name], variant="primary" if name == "run" else "secondary",
                elem_id=f"ds-batch-{name}", interactive=name in ("run", "estimate"), min_width=84,
            )
            for name in BUTTONS
        }  # fmt: skip

    def rows(asked: Any) -> str:
        return batch.rows(asked)

    def aggregates(asked: Any) -> str:
        return batch.aggregates(asked)

    shown = gr.HTML(
        "", html_template=static_files.template("batch"), elem_id="ds-batch",
        server_functions=[rows, aggregates],
        **static_files.BARE | {"js_on_load": static_files.script("batch", ("race",))},
    )  # fmt: skip
    outputs = [shown, *keys.values()]
    inputs = [shown, *source, *settings, handlers.form.values_copy]
    starts = (("run", None), ("estimate", 1))
    begun = [
        keys[name]
        .click(**handlers.form.copy_listener)
        .then(batch.starter(first), inputs, outputs, **RUNS, **RAW, **PRIVATE)
        for name, first in starts
    ]
    begun.append(keys["continue"].click(batch.go_on, shown, outputs, **RUNS, **RAW, **PRIVATE))
    for event in begun:
        for follow in (event.then, event.failure):
            follow(batch.idle, shown, list(keys.values()), **RAW, **FLAG)
    keys["stop"].click(batch.stop, None, None, trigger_mode="multiple", **FLAG)
    keep_values(
        demo, [keys["run"], keys["estimate"]], [*source, *settings], "driftscope-batch-form"
    )
    demo.load(batch.reopen, shown, outputs, js=REOPEN_JS, **RAW, **FLAG)
    demo.unload(batch.leave)
    filled = shown.race(batch.fill, None, [tabs, handlers.form.values_given], **FLAG)
    filled.then(**handlers.form.fill_listener)
    run.follow(shown.race(batch.race, None, run.outputs, **RUNS, **PRIVATE))


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
        info="Runs everything again with the recorder on and averages what was recorded: drift, "
        "similarity, with probe also the error against exact.",
    )  # fmt: skip
    given = [name, kept, handlers.form.values_copy]
    keep.click(**handlers.form.copy_listener).then(batch.keep, given, [kept, said], **RAW, **FLAG)
    return [lanes, kept, record]
