"""Model picker: the model, its presets, its number format and its device in the settings."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import gradio as gr

from inspector import static_files
from inspector.form.presets import Presets
from inspector.form.settings import Form, widget
from inspector.page_data.sizes import parameters, size
from inspector.protocol import Session

TYPED = "Or type the name of a model on the Hub (owner/name), or a folder with a checkpoint."
DEVICE = "auto: distributes the layers over GPUs, CPU memory and disk."


def build_model_picker(form: Form) -> gr.HTML:
    """Build the row with model, presets, number format and device.

    Returns the component of the presets, which is not one of the form's widgets.
    """
    catalog, default = form.catalog, form.catalog.default.a
    choices = model_choices(catalog.models)
    with gr.Row(elem_id="ds-model-picker", equal_height=True):
        with gr.Column(scale=5, min_width=300):
            form.widgets["model"] = gr.Dropdown(
                choices, value=default.model if choices else None, label="Model",
                allow_custom_value=catalog.any_model, info=TYPED if catalog.any_model else None,
                elem_id="ds-model",
            )  # fmt: skip
        with gr.Column(scale=4, min_width=260):
            presets = gr.HTML(
                Presets(form).offer(default.model), html_template=static_files.text("preset.html"),
                elem_id="ds-preset",
                **static_files.BARE | {"js_on_load": static_files.script("preset", ("take",))},
            )  # fmt: skip
        with gr.Column(scale=2, min_width=170):
            form.widgets["dtype"] = widget(catalog.fields["dtype"], default.dtype, "ds-dtype")
        with gr.Column(scale=2, min_width=170, visible=set(catalog.devices) > {"cpu"}):
            form.widgets["device"] = gr.Dropdown(
                catalog.device_choices, value=default.device, label="Device", elem_id="ds-device",
                info=DEVICE if "auto" in catalog.devices else None,
            )  # fmt: skip
    return presets


def model_choices(rows: list[dict[str, Any]]) -> list[tuple[str, str]]:
    """(label, name) of every model: embedded models, then models on this machine, then others."""
    ordered = sorted(rows, key=lambda row: (not row["embedded"], not row["available"]))
    return [(model_label(row), str(row["name"])) for row in ordered]


def model_label(row: Mapping[str, Any]) -> str:
    """A model's title, whether it must be downloaded, its size and licence."""
    if row.get("error"):
        return f"{row['title']} · cannot be read"
    download = f", {size(row['fetch_bytes'])}" if row["fetch_bytes"] else ""
    where = "on this machine" if row["available"] else f"to be downloaded{download}"
    count = f"{parameters(row['parameters'])} parameters" if row["parameters"] else ""
    active = row.get("active_parameters", row["parameters"])  # with experts, fewer than all
    count += f", {parameters(active)} active" if active < row["parameters"] else ""
    return " · ".join(filter(None, [row["title"], where, count, row["licence"]]))


def refreshed_models(session: Session) -> Any:
    """An update of the model dropdown, for models that were downloaded since it was built."""
    return gr.update(choices=model_choices(session.catalog()["models"]))
