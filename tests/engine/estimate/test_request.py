"""Requests for an estimate."""

from types import SimpleNamespace

import pytest

from engine.config.spec import RunSpec
from engine.estimate.request import EstimateRequest, estimate_spec

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
