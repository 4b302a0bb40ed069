"""The rates of this machine, which are measured."""

from functools import cache

import pytest
import torch

from engine.estimate import machine_rates
from engine.estimate.devices import MANY_ROWS
from engine.estimate.estimate import known_device, known_model


def test_this_machine_is_measured():
    info = known_model("llada:layers=2,d=64,heads=1,ffn=64,vocab=1024")
    rates = known_device("this", info, torch.float32)
    assert rates.measured
    assert min(rates.flops, rates.few_flops, rates.attention_flops, rates.bandwidth) > 0
    assert rates.step_seconds >= 0


def test_rates_are_measured_for_each_number_of_threads(monkeypatch):
    parts = {"_attention_rate": 1e9, "_bandwidth": 1e9, "_overheads": (0.0, 0.0)}
    parts |= {"_product_rate": 1e9}
    for name, found in parts.items():
        monkeypatch.setattr(machine_rates, name, lambda *_, value=found: value)
    info = known_model("GSAI-ML/LLaDA-8B-Instruct")
    monkeypatch.setattr(machine_rates, "_measure", cache(machine_rates._measure.__wrapped__))
    for threads in (1, 2):
        monkeypatch.setattr(torch, "get_num_threads", lambda n=threads: n)
        rates = machine_rates.measure_this_machine(info, torch.float32)
        assert f"{threads} thread(s)" in rates.title


def test_a_busy_machine_never_seems_to_have_layers_without_time(monkeypatch):
    """Three layers are measured no slower than one: all of a step's time is the layers'."""
    measured = []

    def no_slower_with_more_layers(spec, layers, *_):
        measured.append(layers)
        return 0.03 / layers

    monkeypatch.setattr(machine_rates, "_step_seconds", no_slower_with_more_layers)
    seconds = machine_rates._layer_seconds((64, 64, 1), torch.float32, MANY_ROWS)
    assert seconds == pytest.approx(0.01 / 3)
    assert measured == [1, 3] * machine_rates.ATTEMPTS
