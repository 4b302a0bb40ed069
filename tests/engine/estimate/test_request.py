"""Requests for an estimate: a prompt of unknown length, and this machine."""

from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch

from engine.config.spec import RunSpec
from engine.estimate import machine_rates, request
from engine.estimate.assumptions import Assumptions
from engine.estimate.devices import DeviceRates
from engine.estimate.estimate import known_model
from engine.estimate.request import EstimateRequest, estimate_spec
from engine.trace.foreign.build import Numbering, trace_of
from engine.trace.foreign.document import read_run

SHAPE = "llada:layers=2,d=64,heads=1,ffn=64,vocab=1024"
SPEC = RunSpec(gen_length=8, block_length=8, steps=8, dtype="bfloat16")


@pytest.mark.parametrize(
    ("ids", "given", "counted", "said"),
    [(None, None, 1, True), ([5] * 40, None, 40, False), (None, 7, 7, False)],
)
def test_a_prompt_of_unknown_length_is_said_to_count_as_one_token(ids, given, counted, said):
    models = SimpleNamespace(prompt=lambda spec: ids, suffix_tokens=lambda spec: 0)
    found = estimate_spec(models, SPEC, EstimateRequest(SHAPE, "h100", given))
    assert found["prompt_tokens"] == counted
    words = " ".join(found["assumed"])
    assert ("The prompt counts as one token" in words) == said
    assert found["exact"] != said


def test_the_methods_of_another_engine_are_not_known():
    document = {"format": "driftscope-run", "version": 1, "tokens": ["a", "b"], "step_map": [2, 1]}
    asked = EstimateRequest(SHAPE, "h100", 7, recorded=trace_of(read_run(document), Numbering()))
    models = SimpleNamespace(prompt=lambda spec: None, suffix_tokens=lambda spec: 0)
    for changes in ({"unmasker": "threshold"}, {"cache": "d2_cache"}):
        with pytest.raises(ValueError, match=r"^recorded: another engine decoded the run"):
            estimate_spec(models, replace(SPEC, **changes), asked)
    assert estimate_spec(models, SPEC, asked)["exact"], "nothing is taken from the run"


def test_an_assumption_says_whether_it_is_given_or_of_the_recorded_run(monkeypatch):
    run = Assumptions(3.0, 0.25, "from the recorded run")
    monkeypatch.setattr(request, "assumptions_of", lambda trace, spec: run)
    models = SimpleNamespace(prompt=lambda spec: None, suffix_tokens=lambda spec: 0)
    spec = replace(SPEC, cache="d2_cache", unmasker="threshold")
    asked = EstimateRequest(SHAPE, "h100", 7, {"tokens_per_forward": 2}, recorded=object())
    tokens, share, *_ = estimate_spec(models, spec, asked)["assumed"]
    assert tokens.endswith("Assumed: 2 a forward on average (as given).")
    assert share.endswith("Assumed: 25.0 % (from the recorded run).")


def test_the_memory_of_this_machine_is_what_is_free_at_the_time(monkeypatch):
    """Its rates are measured once, and models are loaded and released in between."""
    rates = DeviceRates("this", "this", 1.0, 1.0, 1.0, 0.0, 0.0, 3, "", measured=True)
    monkeypatch.setattr(machine_rates, "_measure", lambda *sizes: rates)
    free = {"cpu": 5}
    monkeypatch.setattr(machine_rates, "free_bytes", lambda: free)
    found = [machine_rates.measure_this_machine(known_model(SHAPE), torch.float32)]
    free["cpu"] = 7
    found.append(machine_rates.measure_this_machine(known_model(SHAPE), torch.float32))
    assert [one.memory for one in found] == [5, 7]
