"""Limits of a public page: refusals name the field and the limit."""

import re
from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch

from engine.config.spec import RaceSpec, RunSpec
from engine.models.loading.resolver import REGISTERED
from engine.serve.limits import Limits, recorded_bytes
from engine.serve.memory_budget import device_titles
from engine.serve.session import Session
from engine.trace.trace import Trace
from inspector.catalog import Catalog
from tests.engine.serve.test_race import PLAIN

LIMITS = Limits()
BEYOND = {
    "gen_length": ({"gen_length": 520, "steps": 520}, "at most 512"),
    "steps": ({"gen_length": 512, "steps": 576}, "at most 512"),
    "prompt": ({"prompt": "x" * 4001}, "shorten it to 4000"),
    "device": ({"device": "auto"}, "set device to cpu or cuda"),
}


@pytest.fixture
def public(checkpoint):
    return Session({"micro": checkpoint}, public=True)


@pytest.mark.parametrize("field", BEYOND)
def test_a_field_beyond_its_limit_is_refused_by_plan_run_and_race(session, public, field):
    changes, remedy = BEYOND[field]
    spec = replace(PLAIN, block_length=8, **changes)
    race = RaceSpec(PLAIN, spec)
    for ask in (public.plan, lambda one: next(public.run(one)), lambda _: next(public.race(race))):
        with pytest.raises(ValueError, match=f"^{field}: .*{remedy}"):
            ask(spec)
    if field != "prompt":  # the model has a limit of its own
        assert session.plan(spec)["max_forwards"] > 0


def test_the_catalog_shows_the_limits(public):
    fields = {row["name"]: row for row in public.catalog()["fields"]}
    assert (fields["gen_length"]["hi"], fields["steps"]["hi"]) == (512, 512)
    assert "auto" not in public.catalog()["devices"]
    assert Limits(gen_length=64).limit_fields([{"name": "seed", "hi": 9}]) == [
        {"name": "seed", "hi": 9}
    ]
    LIMITS.check(RunSpec(gen_length=512, block_length=32, steps=512, prompt="x" * 4000))


def test_a_recording_that_is_too_large_is_refused_with_a_smaller_level(public, monkeypatch):
    monkeypatch.setattr(public, "_limits", Limits(recording=2_500))
    public.plan(replace(PLAIN, record="steps"))
    with pytest.raises(ValueError, match=r"^record: level layers .* set record to steps"):
        public.plan(replace(PLAIN, record="layers"))
    monkeypatch.setattr(public, "_limits", Limits(recording=100))
    with pytest.raises(ValueError, match=r"set record to off"):
        public.plan(replace(PLAIN, record="steps"))


@pytest.mark.parametrize("record", ["steps", "layers", "probe"])
def test_recorded_bytes_are_close_to_those_of_the_trace(session, record):
    spec = replace(PLAIN, record=record, probe_steps=4)
    trace = Trace()
    for event in session.run(spec):
        trace.append(event)
    info, tokens = session._models.info("micro"), len(session._models.prompt(spec))
    names = {"steps": ("plan",), "layers": ("plan", "drift")}.get(record)
    names = names or ("plan", "drift", "probe_error", "probe_moved")
    held = sum(trace.arrays()[name].nbytes for name in names)
    assert 0.9 * held < recorded_bytes(spec, info, tokens, trace.steps) < 1.1 * held
    assert recorded_bytes(replace(spec, record="off"), info, tokens, trace.steps) == 0


def test_all_but_the_longest_presets_are_within_the_limits():
    refused = set()
    for model in REGISTERED.values():
        for preset in model.presets:
            fields = preset.to_dict()["fields"]
            try:
                LIMITS.check(RunSpec.from_dict({"model": model.name} | fields))
            except ValueError as error:
                refused.add((model.name, preset.name, re.match(r"\w+", str(error)).group()))
    assert refused == {
        ("GSAI-ML/LLaDA-1.5", "math", "gen_length"),
        ("GSAI-ML/LLaDA-8B-Instruct", "flashdlm", "gen_length"),
        ("Dream-org/Dream-v0-Instruct-7B", "flashdlm", "gen_length"),
    }


def test_gpus_are_titled_with_name_memory_and_bfloat16_support(session, monkeypatch):
    assert session.catalog()["device_titles"] == {}
    cards = [SimpleNamespace(name="NVIDIA L40S", total_memory=47_700_000_000, major=8),
             SimpleNamespace(name="Tesla T4", total_memory=15_800_000_000, major=7)]  # fmt: skip
    monkeypatch.setattr(torch.cuda, "device_count", lambda: len(cards))
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda i: cards[i])
    found = device_titles()
    assert found["cuda"] == found["cuda:0"] == "NVIDIA L40S, 47.7 GB"
    assert found["cuda:1"] == "Tesla T4, 15.8 GB, bfloat16 emulated: choose float16"
    catalog = Catalog(
        session.catalog() | {"device_titles": found, "devices": ["cpu", "cuda:1"]},
        session.default_race(),
    )
    assert catalog.device_choices == [("cpu", "cpu"), (f"cuda:1 · {found['cuda:1']}", "cuda:1")]
