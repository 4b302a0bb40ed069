"""The longest run that is estimated."""

import pytest

from engine.config.spec import RunSpec
from engine.estimate.assumptions import Assumptions
from engine.estimate.estimate import (
    MAX_LAYER_FORWARDS,
    Target,
    known_model,
    layer_forwards,
    simulate,
)
from engine.models.loading.registry import REGISTERED


def test_a_run_of_more_forwards_than_are_estimated_is_refused():
    spec = RunSpec(prompt="x", gen_length=1024, steps=1024)
    name = "llada:layers=97,d=64,vocab=1024"
    with pytest.raises(ValueError, match=r"^steps: with 97 layers this run has 99328 forwards"):
        simulate(spec, Target(name, known_model(name), 8), Assumptions())


def test_the_longest_run_with_guidance_is_estimated_on_every_listed_model():
    spec = RunSpec(prompt="x", gen_length=1024, steps=1024, cfg_scale=1.0)
    listed = [known_model(name) for name, card in REGISTERED.items() if card.config]
    assert max(layer_forwards(spec, info) for info in listed) <= MAX_LAYER_FORWARDS
