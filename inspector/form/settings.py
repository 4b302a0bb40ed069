"""The settings form: widgets made from the catalog, and conversion of their values to a race."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import gradio as gr
from gradio.components import Component

from engine.config.spec import MAX_PROMPT_CHARS, RaceSpec, RunSpec
from inspector.catalog import Catalog
from inspector.form.field_labels import with_labels
from inspector.page_data.links import not_in_form
from inspector.protocol import LANES, Lane

MAIN = ("gen_length", "block_length", "temperature", "seed")
ADVANCED = ("cfg_scale", "eos", "eos_suppress", "suffix", "chat", "keep_after_image")
LISTS = ("images", "stop")  # fields that are lists of texts
RECORDING = ("record_layers", "record_quantities", "record_every", "record_positions")
SHARED = ("model", "dtype", "device", "prompt", *MAIN, *ADVANCED, *RECORDING)
STEPS_INFO = {
    True: "Total number of steps, divided evenly among the blocks.",
    False: "Not used: this unmasker decides how many steps are made.",
}
CAUSAL_MODELS = ("autoregressive.model", "guided.guider")  # knobs that name a causal model
COPY_JS = "(...values) => [values]"  # the only output: a list of all values
# An output that is undefined keeps its value.
FILL_JS = """
(given, copy) => !given ? [] : [
  ...given.map((one) => one?.[0]), copy.map((value, i) => (given[i] ? given[i][0] : value)),
]
"""
LANE_NAMES = {"a": "Lane A, the baseline", "b": "Lane B, the challenger"}


@dataclass
class Form:
    """The widgets of the form.

    Attributes:
        catalog: models, methods and fields.
        widgets: widgets by key. The key is the name of a field that both lanes share, or has a
            lane in front: `a.steps`, `b.threshold.threshold`.
        groups: the column with the knobs of a method, by lane, kind and method.
        values_copy: a hidden component with the widgets' values as one list, in the order of
            `widgets`. Listeners read it instead of the widgets: once a listener has finished, each
            message of any listener updates all components that it read, and Gradio's page searches
            its whole tree for each of them.
        values_given: a hidden component with the values that a handler gives the widgets (see
            `given`). For a handler with the widgets as outputs, Gradio's server would make each of
            them anew.
    """

    catalog: Catalog
    widgets: dict[str, Component] = field(default_factory=dict)
    groups: dict[tuple[Lane, str, str], gr.Column] = field(default_factory=dict)
    values_copy: gr.JSON = field(
        default_factory=partial(gr.JSON, visible=False, render=False, elem_id="ds-values-copy")
    )
    values_given: gr.JSON = field(
        default_factory=partial(gr.JSON, visible=False, render=False, elem_id="ds-values-given")
    )

    @property
    def inputs(self) -> list[Component]:
        """The widgets in the order of `widgets`."""
        return list(self.widgets.values())

    @property
    def copy_listener(self) -> dict[str, Any]:
        """The arguments of a listener that copies the widgets' values to `values_copy`.

        The page runs it by itself. A listener that reads `values_copy` follows it.
        """
        return {
            "fn": None, "inputs": self.inputs, "outputs": self.values_copy, "js": COPY_JS,
            "api_visibility": "private",
        }  # fmt: skip

    @property
    def fill_listener(self) -> dict[str, Any]:
        """The arguments of a listener that gives the widgets, and their copy, `values_given`.

        The page runs it by itself, after a listener with the output `values_given`.
        """
        return {
            "fn": None, "inputs": [self.values_given, self.values_copy],
            "outputs": [*self.inputs, self.values_copy], "js": FILL_JS,
            "api_visibility": "private",
        }  # fmt: skip

    def given(self, values: Mapping[str, Any]) -> list[list[Any] | None]:
        """A value of `values_given`: the widgets of these keys get the values, others keep theirs.

        None gives nothing.
        """
        return [[values[key]] if key in values else None for key in self.widgets]

    def by_key(self, values: Any) -> dict[str, Any]:
        """The values by widget key, from a list in the order of `widgets`.

        Raises ValueError if `values` is not a list of that length.
        """
        if not isinstance(values, list) or len(values) != len(self.widgets):
            raise ValueError(f"settings: not a list of {len(self.widgets)} values; reload the page")
        return dict(zip(self.widgets, values, strict=True))

    def race(self, values: Any) -> RaceSpec:
        """The race given by a list of the widgets' values.

        Raises ValueError, which names the field.
        """
        found = self.by_key(values)
        for name in ("model", "record_layers", "record_quantities", "record_positions"):
            found[name] = _strip(found[name])
        lists = {"images": str(found["images"] or "").split(), "stop": _as_list(found["stop"])}
        shared = {name: _as_field_type(found[name], self.catalog.fields[name]) for name in SHARED}
        lanes = {lane: self._lane(lane, found) for lane in LANES}
        shared |= lists
        return RaceSpec(
            *(RunSpec.from_dict(_spec_fields(self.catalog, lane, shared, lanes)) for lane in LANES)
        )

    def values_by_key(self, race: RaceSpec) -> dict[str, Any]:
        """The widgets' values for a race, in the order of `widgets`.

        Raises ValueError if the form cannot show the race.

        The recording level is not in the form, because the page records in a separate run.
        """
        self._check_shown(race)
        specs = {"a": race.a, "b": race.b}
        out: dict[str, Any] = {}
        for key in self.widgets:
            lane, _, name = key.partition(".")
            if key == "images":
                out[key] = " ".join(race.a.images)
            elif key == "stop":
                out[key] = json.dumps(race.a.stop, ensure_ascii=False) if race.a.stop else ""
            elif lane not in specs or not name:
                out[key] = getattr(race.a, key)
            elif "." in name:
                row = self._knob(name)
                value = specs[lane].knobs.get(name, row["default"])
                out[key] = _as_text(value) if row["optional"] else value
            else:
                out[key] = getattr(specs[lane], name)
        return out

    def above_limit(self, params: Mapping[str, str]) -> str:
        """Why a number of a link's settings is refused: this page allows less. Empty if none is."""
        for key, text in params.items():
            row = self.catalog.fields.get(key.rpartition(".")[2])
            most = row["hi"] if row and row["type"] == "int" else None
            if most is not None and text.isdecimal() and len(text) < 10 and int(text) > most:
                return f"{key}: {text} is more than this page allows; at most {most}"
        return ""

    def labelled(self, message: str) -> str:
        """A message of a refused spec, in which the controls' labels replace the fields' names."""
        labels = {name: str(row["label"]) for name, row in self.catalog.fields.items()}
        labels |= {name: _capitalised(name) for name in LISTS}
        for rows in self.catalog.methods.values():
            for row in rows:
                for knob in row["knobs"]:
                    labels[f"{row['name']}.{knob['name']}"] = _capitalised(knob["label"])
        return with_labels(message, labels)

    def lane_updates(self, lane: Lane, unmasker: Any, cache: Any) -> list[Any]:
        """Updates that show the knobs of the chosen methods and disable `steps` if it is unused."""
        names = {"unmasker": unmasker, "cache": cache}
        chosen = {
            (kind, row["name"]) for kind in names for row in self.catalog.parts(kind, names[kind])
        }
        updates: list[Any] = [
            gr.update(visible=(kind, name) in chosen)
            for (owner, kind, name) in self.groups
            if owner == lane
        ]
        used = self.catalog.uses_steps(unmasker)
        return [*updates, gr.update(interactive=used, info=STEPS_INFO[used])]

    def _lane(self, lane: Lane, found: Mapping[str, Any]) -> dict[str, Any]:
        out: dict[str, Any] = {kind: found[f"{lane}.{kind}"] for kind in ("unmasker", "cache")}
        if self.catalog.uses_steps(out["unmasker"]):
            out["steps"] = _as_field_type(found[f"{lane}.steps"], self.catalog.fields["steps"])
        knobs = {}
        for kind in ("unmasker", "cache"):
            for part in self.catalog.parts(kind, out[kind]):
                for row in part["knobs"]:
                    name = f"{part['name']}.{row['name']}"
                    knobs[name] = _as_field_type(_strip(found[f"{lane}.{name}"]), row)
        return out | {"knobs": knobs}

    def _knob(self, name: str) -> Mapping[str, Any]:
        component, knob = name.split(".")
        methods = [row for rows in self.catalog.methods.values() for row in rows]
        owner = next(row for row in methods if row["name"] == component)
        return next(row for row in owner["knobs"] if row["name"] == knob)

    def _check_shown(self, race: RaceSpec) -> None:
        if refusal := not_in_form(race.a, race.b):
            raise ValueError(refusal)
        for lane, spec in (("a", race.a), ("b", race.b)):
            known = [row["name"] for row in self.catalog.models]
            if spec.model not in known and not self.catalog.any_model:
                raise ValueError(f"model: {spec.model!r} is not on this server")
            for knob in CAUSAL_MODELS:
                named = spec.knobs.get(knob)
                if named and named not in self.catalog.guiders and not self.catalog.any_model:
                    raise ValueError(f"{lane}.{knob}: {named!r} is not on this server")
            if spec.device not in self.catalog.devices:
                raise ValueError(
                    f"device: {spec.device!r} is not on this server; "
                    f"choose from {', '.join(self.catalog.devices)}"
                )
            for kind in ("unmasker", "cache"):
                if not self.catalog.parts(kind, getattr(spec, kind)):
                    names = ", ".join(name for _, name in self.catalog.choices(kind))
                    raise ValueError(
                        f"{lane}.{kind}: {getattr(spec, kind)!r} is unknown; choose from {names}"
                    )


def build_shared(form: Form) -> None:
    """Build the widgets of the fields that both lanes share, except model, device and prompt."""
    fields, default = form.catalog.fields, form.catalog.default.a
    for name in MAIN:
        form.widgets[name] = widget(fields[name], getattr(default, name), f"ds-{name}")
    for title, names in (("Advanced", ADVANCED), ("Recording", RECORDING)):
        with gr.Accordion(title, open=False):
            for name in names:
                form.widgets[name] = widget(fields[name], getattr(default, name), f"ds-{name}")
            if title == "Advanced":
                form.widgets["stop"] = gr.Textbox(
                    "", label="Stop", max_lines=1, max_length=1_000, elem_id="ds-stop-texts",
                    info='Texts that end the answer, as JSON: ["<|eot_id|>"]; empty: none.',
                )  # fmt: skip


def build_prompt(form: Form) -> None:
    """Build the text box of the prompt."""
    form.widgets["prompt"] = gr.Textbox(
        form.catalog.default.a.prompt, label="Prompt", lines=10, max_lines=14,
        max_length=MAX_PROMPT_CHARS, elem_id="ds-prompt",
        info="Worked examples first, if any; the last paragraph is the problem.",
    )  # fmt: skip
    form.widgets["images"] = gr.Textbox("", visible=False, label="Images")


def build_lane(form: Form, lane: Lane) -> None:
    """Build the widgets of one lane: its methods, their knobs and its steps."""
    catalog = form.catalog
    spec = catalog.default.a if lane == "a" else catalog.default.b
    gr.Markdown(f"## {LANE_NAMES[lane]}")
    for kind in ("unmasker", "cache"):
        shown = [row["name"] for row in catalog.parts(kind, getattr(spec, kind))]
        form.widgets[f"{lane}.{kind}"] = gr.Dropdown(
            catalog.choices(kind), value=getattr(spec, kind),
            label=f"{kind.capitalize()} {lane.upper()}", elem_id=f"ds-{lane}-{kind}",
            info=catalog.fields[kind]["help"],
        )  # fmt: skip
        for row in catalog.methods[kind]:
            if row["knobs"]:
                _build_knobs(form, lane, kind, row, row["name"] in shown)
        if kind == "unmasker":
            _build_steps(form, lane, spec)


def _build_steps(form: Form, lane: Lane, spec: RunSpec) -> None:
    used = form.catalog.uses_steps(spec.unmasker)
    row = form.catalog.fields["steps"] | {
        "label": f"Steps {lane.upper()}",
        "help": STEPS_INFO[used],
    }
    form.widgets[f"{lane}.steps"] = widget(row, spec.steps, f"ds-{lane}-steps", interactive=used)


def _build_knobs(form: Form, lane: Lane, kind: str, row: Mapping[str, Any], shown: bool) -> None:
    spec = form.catalog.default.a if lane == "a" else form.catalog.default.b
    with gr.Column(visible=shown, elem_id=f"ds-{lane}-{kind}-{row['name']}") as group:
        for knob in row["knobs"]:
            key = f"{row['name']}.{knob['name']}"
            labelled = knob | {"label": f"{_capitalised(knob['label'])} {lane.upper()}"}
            value = spec.knobs.get(key, knob["default"])
            elem_id = f"ds-{lane}-{key.replace('.', '-')}"
            made = partial(causal_widget, form.catalog) if key in CAUSAL_MODELS else widget
            form.widgets[f"{lane}.{key}"] = made(labelled, value, elem_id)
    form.groups[lane, kind, row["name"]] = group


def causal_widget(
    catalog: Catalog, row: Mapping[str, Any], value: Any, elem_id: str
) -> gr.Dropdown:
    """The dropdown of causal models. If the session allows any model, other names can be typed."""
    names = list(dict.fromkeys([*catalog.guiders, value]))
    return gr.Dropdown(
        names, value=value, label=row["label"], info=row["help"], elem_id=elem_id,
        allow_custom_value=catalog.any_model,
    )  # fmt: skip


def widget(row: Mapping[str, Any], value: Any, elem_id: str, interactive: bool = True) -> Component:
    """The widget for a field or knob, chosen by its type and range."""
    common: dict[str, Any] = {
        "label": row["label"], "info": row["help"] or None, "elem_id": elem_id,
        "interactive": interactive,
    }  # fmt: skip
    if row["choices"]:
        return gr.Dropdown(list(row["choices"]), value=value, **common)
    if row["type"] == "bool":
        return gr.Checkbox(value, **common)
    if row["type"] == "str":
        return gr.Textbox(value, max_lines=1, max_length=200, **common)
    span = None if row["lo"] is None or row["hi"] is None else row["hi"] - row["lo"]
    if row["type"] == "float" and span is not None and not row["optional"]:
        step = 0.01 if span <= 2 else 0.1
        if _is_multiple(row["lo"], step) and _is_multiple(row["default"], step):
            return gr.Slider(row["lo"], row["hi"], value, step=step, **common)
        return gr.Number(value, step=row["default"], **common)
    if row["optional"]:
        return gr.Textbox(_as_text(value), max_lines=1, max_length=20, **common)
    return gr.Number(value, **common)


def _capitalised(text: str) -> str:
    return text[:1].upper() + text[1:]


def _is_multiple(value: float, step: float) -> bool:
    return math.isclose(value, round(value / step) * step, abs_tol=1e-9)


def _spec_fields(
    catalog: Catalog, lane: Lane, shared: dict[str, Any], lanes: dict[Lane, dict[str, Any]]
) -> dict[str, Any]:
    base = (catalog.default.a if lane == "a" else catalog.default.b).to_dict()
    base |= {"messages": [], "fixed": []}
    return base | shared | lanes[lane]


def _as_field_type(value: Any, row: Mapping[str, Any]) -> Any:
    """A widget's value converted to the field's type if the conversion is exact."""
    if row["type"] == "int" and isinstance(value, float) and value.is_integer():
        return int(value)
    if value is None and row["type"] == "str":
        return ""
    if row["optional"] and isinstance(value, str):
        return _parse_number(value.strip(), row["type"])
    return value


def _as_list(text: Any) -> Any:
    """A list of texts written as JSON, empty for no text; other texts as a list of one."""
    given = str(text or "").strip()
    try:
        return json.loads(given) if given.startswith("[") else [given] if given else []
    except (ValueError, RecursionError):
        raise ValueError('stop: not a JSON list of texts, such as ["<|eot_id|>"]') from None


def _strip(value: Any) -> Any:
    return value.strip() if isinstance(value, str) else value


def _as_text(value: Any) -> str:
    return "" if value is None else str(value)


def _parse_number(text: str, kind: str) -> Any:
    """Parse a number: None for empty text, and the text itself if it is not a number."""
    try:
        return None if not text else {"int": int, "float": float}[kind](text)
    except (ValueError, KeyError):
        return text
