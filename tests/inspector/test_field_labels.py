"""Messages of refused settings name the controls by their labels."""

import json

import pytest

from inspector.form.field_labels import with_labels
from tests.inspector.conftest import form_values, small_race

LABELS = {
    "dtype": "Number format", "device": "Device", "gen_length": "Answer length",
    "block_length": "Block length", "unmasker": "Unmasker", "steps": "Steps", "model": "Model",
    "threshold.threshold": "Threshold",
}  # fmt: skip


@pytest.mark.parametrize(
    ("said", "shown"),
    [
        (
            "block_length: 7 does not divide gen_length 32; nearest valid: 8",
            "Block length: 7 does not divide “Answer length” 32; nearest valid: 8",
        ),
        ("b.threshold.threshold: 3 is too much", "Lane B, Threshold: 3 is too much"),
        ("Lane A, steps: 3 is no multiple", "Lane A, Steps: 3 is no multiple"),
        (
            "model: needs 16 GB; set dtype to bfloat16, or set device to cuda",
            "Model: needs 16 GB; set “Number format” to bfloat16, or set “Device” to cuda",
        ),
        ("steps: too few steps for the model", "Steps: too few steps for the model"),
        ("queue: too many runs are waiting", "queue: too many runs are waiting"),
        (
            "b.speed: unknown field; the fields are block_length, steps",
            "b.speed: unknown field; the fields are block_length, steps",
        ),
        ("Unexpected error in the app", "Unexpected error in the app"),
    ],
)
def test_a_message_names_the_labels(said, shown):
    assert with_labels(said, LABELS) == shown


def test_every_field_and_knob_of_the_form_is_known_by_its_label(form):
    for key, widget in form.widgets.items():
        name = key.removeprefix("a.").removeprefix("b.")
        said = form.labelled(f"{name}: wrong").removesuffix(": wrong")
        assert said == widget.label.removesuffix(" A").removesuffix(" B")


def test_the_plan_and_a_refused_run_name_the_control(handlers, form, session, request_of):
    found = dict(zip(form.widgets, form_values(form, small_race(session)), strict=True))
    values = list((found | {"gen_length": 30}).values())
    text, _ = handlers.plan(request_of(), values)
    ((notice, *_),) = handlers.run(request_of(), values)
    for message in (json.loads(text)["error"], json.loads(notice)["message"]):
        assert message.startswith("Block length: 8 does not divide “Answer length” 30")


def test_a_link_that_is_refused_names_the_control(handlers, request_of):
    notice, *_ = handlers.restore(request_of(**{"b.gen_length": "-4"}))
    said = json.loads(notice)["message"]
    assert json.loads(notice)["state"] == "invalid_link"
    assert "(Lane B, Answer length: -4 is outside 1 to 1024" in said


@pytest.mark.parametrize("key", ["gen_length", "b.steps"])
def test_a_link_above_a_limit_of_the_page_is_told_that_limit(
    handlers, request_of, monkeypatch, key
):
    fields, name = handlers.form.catalog.fields, key.rpartition(".")[2]
    monkeypatch.setitem(fields, name, fields[name] | {"hi": 512})
    notice, given = handlers.restore(request_of(**{key: "4096"}))
    said = json.loads(notice)["message"]
    assert "4096 is more than this page allows; at most 512" in said
    assert "1024" not in said
    assert given is None
