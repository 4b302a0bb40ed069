"""Presets: named settings of a model that fill the form."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any

import gradio as gr

from engine.config.spec import RaceSpec, RunSpec
from inspector.catalog import Catalog
from inspector.form.settings import Form
from inspector.page_data.messages import to_json
from inspector.protocol import LANES

KEPT = ("prompt", "images", "seed", "dtype", "device")  # unless the preset sets them
NONE_KNOWN = "This model has no presets."
INFO = "Settings of a paper or a demo. The methods go to lane B, the lengths to both lanes."
# The offer, without the chosen preset once a widget has another value than the preset gave it.
CHECK_CHOICE_JS = """
(offer, given, values) => {
  const changed = (given ?? []).some((one, i) => one && one[0] !== values[i]);
  return changed ? JSON.stringify({ ...JSON.parse(offer), chosen: "" }) : offer;
}
"""


class Presets:
    """The choice of presets and its effect on the form."""

    def __init__(self, form: Form) -> None:
        self._form = form

    def offer(self, model: Any, chosen: str = "") -> str:
        """The presets of a model as JSON: names, titles with sources, and the chosen one."""
        rows = self._form.catalog.presets(model)
        choices = [(row["name"], f"{row['title']} ({row['source']})") for row in rows]
        return to_json({"choices": choices, "chosen": chosen, "info": INFO if rows else NONE_KNOWN})

    def fit(self, model: Any, values: Any) -> list[Any]:
        """The presets to offer and values for the form, after the model was changed to `model`.

        The values are those of `Form.values_given`.

        Settings that the model's attention rules out give way: to its first preset if attention is
        block-causal, else to the page's default race. All others stay.

        Raises ValueError if `values` is not a list of the form's values.
        """
        catalog, found = self._form.catalog, self._form.by_key(values)
        row = next((row for row in catalog.models if row["name"] == model), None)
        kept = [self.offer(model), None]
        if row is None or not row["attention"] or _fits(catalog, row, found):
            return kept
        if row["attention"] == "full":
            usual = self._form.values_by_key(catalog.default)
            changed = {key: value for key, value in usual.items() if not _is_kept(key)}
            return [kept[0], self._form.given(changed)]
        first = next(iter(row["presets"]), None)
        if first is None:
            return kept
        values = preset_values(self._form, model, first["name"])
        return [self.offer(model, first["name"]), self._form.given(values)]

    def take(self, event: gr.EventData, model: Any) -> list[Any]:
        """The choice to show, and values for the form, of the preset named by `event.preset`."""
        name = getattr(event, "preset", None)
        known = any(row["name"] == name for row in self._form.catalog.presets(model))
        shown = self.offer(model, str(name) if known else "")
        return [shown, self._form.given(preset_values(self._form, model, name))]


def preset_values(form: Form, model: Any, name: Any) -> dict[str, Any]:
    """The values that a preset sets, by key of the widget; none for an unknown preset."""
    found = next((row for row in form.catalog.presets(model) if row["name"] == name), None)
    if found is None:
        return {}
    fields = found["fields"]
    race = preset_race(form.catalog, str(model), fields)
    values = form.values_by_key(race)
    return {key: value for key, value in values.items() if not _is_kept(key, fields)}


def _is_kept(key: str, fields: Mapping[str, Any] = MappingProxyType({})) -> bool:
    """Whether a widget keeps its value: the model, and what settings `fields` do not set."""
    return key == "model" or (key in KEPT and key not in fields)


def _fits(catalog: Catalog, row: Mapping[str, Any], found: Mapping[str, Any]) -> bool:
    """Whether the caches and the block length of the form go with a model's attention."""
    caches = [one for lane in LANES for one in catalog.parts("cache", found[f"{lane}.cache"])]
    fits = all(row["attention"] in one["attention"] for one in caches)
    return fits and (not row["block_sizes"] or found["block_length"] in row["block_sizes"])


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
