"""Presets: a model's named settings, offered in the form and filled into it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import gradio as gr

from engine.config.spec import RaceSpec, RunSpec
from inspector.catalog import Catalog
from inspector.form.settings import Form
from inspector.handlers.page_handlers import to_json

KEPT = ("prompt", "seed", "dtype", "device")  # the visitor's own, where a preset is silent on them
NONE_KNOWN = "None is known for this model."
INFO = "Settings of a paper or a demo: methods into lane B, lengths into both."
CLEAR_CHOICE_JS = "(value) => JSON.stringify({ ...JSON.parse(value), chosen: '' })"


class Presets:
    """What a visitor may choose among, and what the choice does to the form."""

    def __init__(self, form: Form) -> None:
        self._form = form

    def offer(self, model: Any, chosen: str = "") -> str:
        """A model's presets for the page: names with titles and sources, and the one chosen."""
        rows = self._form.catalog.presets(model)
        choices = [(row["name"], f"{row['title']} ({row['source']})") for row in rows]
        return to_json({"choices": choices, "chosen": chosen, "info": INFO if rows else NONE_KNOWN})

    def take(self, event: gr.EventData, model: Any) -> list[Any]:
        """The event's `preset` shown as chosen, and the form's values as it sets them."""
        name = getattr(event, "preset", None)
        known = any(row["name"] == name for row in self._form.catalog.presets(model))
        shown = self.offer(model, str(name) if known else "")
        return [shown, *preset_values(self._form, model, name)]


def preset_values(form: Form, model: Any, name: Any) -> list[Any]:
    """The widgets' values that a preset sets; what it leaves alone, and all if unknown, is skipped.

    The order is that of `Form.inputs`.
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
    """A preset as a race: lane B is it, lane A the same lengths decoded plainly.

    Lane A takes the preset's unmasker where that spends steps, so that only the cache differs;
    a preset without a cache is set against the page's own baseline. Steps that a preset is
    silent on are one for each token.
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
