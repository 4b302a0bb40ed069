"""Presets: named settings of a model that fill the form."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import gradio as gr

from engine.config.spec import RaceSpec, RunSpec
from inspector.catalog import Catalog
from inspector.form.settings import Form
from inspector.page_data.messages import to_json

KEPT = (
    "prompt",
    "images",
    "seed",
    "dtype",
    "device",
)  # stay as the visitor set them unless the preset does
NONE_KNOWN = "This model has no presets."
INFO = "Settings of a paper or a demo. The methods go to lane B, the lengths to both lanes."
CLEAR_CHOICE_JS = "(value) => JSON.stringify({ ...JSON.parse(value), chosen: '' })"


class Presets:
    """The choice of presets and its effect on the form."""

    def __init__(self, form: Form) -> None:
        self._form = form

    def offer(self, model: Any, chosen: str = "") -> str:
        """The presets of a model as JSON: names, titles with sources, and the chosen one."""
        rows = self._form.catalog.presets(model)
        choices = [(row["name"], f"{row['title']} ({row['source']})") for row in rows]
        return to_json({"choices": choices, "chosen": chosen, "info": INFO if rows else NONE_KNOWN})

    def take(self, event: gr.EventData, model: Any) -> list[Any]:
        """Apply the preset named by `event.preset`: the choice to show, and the form's values."""
        name = getattr(event, "preset", None)
        known = any(row["name"] == name for row in self._form.catalog.presets(model))
        shown = self.offer(model, str(name) if known else "")
        return [shown, *preset_values(self._form, model, name)]


def preset_values(form: Form, model: Any, name: Any) -> list[Any]:
    """The widgets' values that a preset sets, in the order of `Form.inputs`.

    A value that the preset does not set is a skip; an unknown preset gives only skips.
    """
    found = next((row for row in form.catalog.presets(model) if row["name"] == name), None)
    if found is None:
        return [gr.skip()] * len(form.widgets)
    fields = found["fields"]
    race = preset_race(form.catalog, str(model), fields)
    values = zip(form.widgets, form.values(race), strict=True)
    alone = {"model", *(key for key in KEPT if key not in fields)}
    return [gr.skip() if key in alone else value for key, value in values]


def preset_race(catalog: Catalog, model: str, fields: Mapping[str, Any]) -> RaceSpec:
    """A race with the preset in lane B and plain decoding of the same lengths in lane A.

    If the preset has a cache and its unmasker uses `steps`, lane A has the same unmasker, so that
    the lanes differ only in the cache. Otherwise lane A has the page's default unmasker. If the
    preset does not set `steps`, there is one step for each token.
    """
    b = RunSpec.from_dict({"model": model, **fields})
    b = replace(b, steps=b.steps if "steps" in fields else b.gen_length)
    plain = catalog.default.a
    unmasker, knobs = plain.unmasker, plain.knobs
    if b.cache != "none" and catalog.uses_steps(b.unmasker):
        own = f"{b.unmasker}."
        unmasker = b.unmasker
        knobs = {key: value for key, value in b.knobs.items() if key.startswith(own)}
    return RaceSpec(replace(b, unmasker=unmasker, cache=plain.cache, knobs=knobs), b)
