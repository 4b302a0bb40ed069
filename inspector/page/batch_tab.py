"""The tab of many prompts: where they come from, the settings, buttons, and the results."""

from __future__ import annotations

from typing import Any

import gradio as gr
from gradio.components import Component

from inspector import static_files
from inspector.handlers.batch_handlers import BUTTONS, FILE, PROBLEMS, TYPED, BatchHandlers
from inspector.handlers.page_handlers import MAX_SHOTS, RUNS, Handlers
from inspector.page.run_tab import FLAG, PRIVATE, RAW, RunTab
from inspector.protocol import Batches

SOURCES = [("Typed, one a line", TYPED), ("A JSONL file", FILE), ("Problems of a family", PROBLEMS)]
LANES = [("Lane A of the Run tab", "a"), ("Lane B of the Run tab", "b")]
LABELS = {"run": "Run", "estimate": "Estimate the time", "continue": "Continue", "stop": "Stop"}
REOPEN_JS = "() => [sessionStorage.getItem('driftscope-batch') || '']"
FORMAT = 'Each line is an object like {"prompt": "…", "answer": "…"}; the answer may be left out.'
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
            source = _source(handlers, batch)
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
    inputs = [shown, *source, *settings, *handlers.form.inputs]
    starts = (("run", None), ("estimate", 1))
    begun = [
        keys[name].click(batch.starter(first), inputs, outputs, **RUNS, **RAW, **PRIVATE)
        for name, first in starts
    ]
    begun.append(keys["continue"].click(batch.go_on, shown, outputs, **RUNS, **RAW, **PRIVATE))
    for event in begun:
        for follow in (event.then, event.failure):
            follow(batch.idle, shown, list(keys.values()), **RAW, **FLAG)
    keys["stop"].click(batch.stop, None, None, trigger_mode="multiple", **FLAG)
    demo.load(batch.reopen, shown, outputs, js=REOPEN_JS, **RAW, **FLAG)
    demo.unload(batch.leave)
    shown.race(batch.fill, None, [tabs, *handlers.form.inputs], **FLAG)
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
        f", {limits['settings']} settings and {limits['seconds']:.0f} s at once on this public "
        "page; other visitors' runs take turns with yours."
    )


def _source(handlers: Handlers, batch: BatchHandlers) -> list[Component]:
    """The widgets of the prompts: source, text, family, count, worked examples and seed."""
    source = gr.Radio(SOURCES, value=TYPED, label="Prompts", elem_id="ds-batch-source")
    text = gr.Textbox(
        "\n".join(row["prompt"] for row in handlers.session.examples()[1:4]),
        lines=6, max_lines=14, label="One prompt in each line", elem_id="ds-batch-prompts",
    )  # fmt: skip
    with gr.Column(visible=False) as uploaded:
        given = gr.File(label="Prompts (.jsonl)", file_types=[".jsonl"], elem_id="ds-batch-file")
        note = gr.Textbox(label="File", info=FORMAT, interactive=False, elem_id="ds-batch-note")
    families = handlers.session.families()
    with gr.Row(visible=False) as drawn:
        family = gr.Dropdown(
            families, value=families[0][1], label="Family", elem_id="ds-batch-family"
        )
        count = gr.Number(20, label="Problems", precision=0, elem_id="ds-batch-count")
        shots = gr.Slider(
            0, MAX_SHOTS, handlers.session.default_shots(), step=1, label="Worked examples",
            elem_id="ds-batch-shots",
        )  # fmt: skip
        seed = gr.Number(0, label="Seed of the problems", precision=0, elem_id="ds-batch-seed")

    def choose(name: Any) -> list[Any]:
        return [gr.update(visible=name == one) for one in (TYPED, FILE, PROBLEMS)]

    source.change(choose, source, [text, uploaded, drawn], **RAW, **FLAG)
    given.upload(batch.take_file, given, note, concurrency_limit=2, **PRIVATE)
    given.clear(batch.take_file, given, note, **PRIVATE)
    return [source, text, family, count, shots, seed]


def _settings(handlers: Handlers, batch: BatchHandlers, levels: list[str]) -> list[Component]:
    """The widgets of the settings: lanes, kept ones and the recording level."""
    lanes = gr.CheckboxGroup(
        LANES, value=["b"], label="Compare with plain decoding", elem_id="ds-batch-lanes"
    )
    with gr.Row():
        name = gr.Textbox(label="Name", max_lines=1, max_length=80, elem_id="ds-batch-name")
        keep = gr.Button("Keep lane B's method", elem_id="ds-batch-keep")
    said = gr.Markdown("", elem_id="ds-batch-said")
    with gr.Accordion("Kept settings", open=False, elem_id="ds-batch-kept-part"):
        kept = gr.Textbox("", lines=3, label="List", info=KEPT_INFO, elem_id="ds-batch-kept")
    record = gr.Dropdown(
        ["off", *levels], value="off", label="Recording", elem_id="ds-batch-record",
        info="Runs everything again with the recorder on and adds the recordings up: drift, "
        "similarity, with probe also the error against exact.",
    )  # fmt: skip
    keep.click(batch.keep, [name, kept, *handlers.form.inputs], [kept, said], **RAW, **FLAG)
    return [lanes, kept, record]
