"""The limits of SDAR's rules: where dynamic, entropy-bounded and sequential equal simpler ones."""

from dataclasses import replace

import numpy as np
import pytest

from engine.catalog import derive_plan
from tests.support.micro import block_model_of, make_prompts, make_spec, run

FAMILIES = ("gqa", "shifted-gqa")
STATIC = {"unmasker": "quota", "knobs": {"quota.score": "confidence"}}


def ran(family, prompt=6, **changes):
    spec = make_spec(**({"gen_length": 12, "steps": 12} | changes))
    return run(block_model_of(family), spec, make_prompts(prompt))


def commits(found):
    """Number of tokens that each step commits."""
    return [len(event.positions) for event in found.events]


def dynamic(threshold, **changes):
    return {"unmasker": "dynamic", "knobs": {"dynamic.threshold": threshold}} | changes


def bounded(gamma):
    return {"unmasker": "entropy_bounded", "knobs": {"entropy_bounded.gamma": gamma}}


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("steps", [6, 12])
def test_from_threshold_one_dynamic_is_the_static_rule(family, steps):
    mine, its = ran(family, **dynamic(1.0, steps=steps)), ran(family, **STATIC, steps=steps)
    assert mine.reveals == its.reveals
    assert len(ran(family, **dynamic(0.02, steps=steps)).events) < len(its.events)


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("rule", [dynamic(-1.0), bounded(1e6)])
def test_without_a_limit_each_block_takes_one_step(family, rule):
    found = ran(family, **rule)
    assert [event.block for event in found.events] == sorted({e.block for e in found.events})


def test_a_bound_of_zero_commits_the_most_certain_token_of_each_step():
    found, widest = ran("gqa", **bounded(0.0)), ran("gqa", **bounded(6.0))
    assert set(commits(found)) == {1}
    entropy = {"unmasker": "dream", "knobs": {"dream.alg": "entropy"}, "temperature": 0.0}
    assert found.reveals == ran("gqa", **entropy).reveals
    assert max(commits(widest)) > 1


@pytest.mark.parametrize("family", FAMILIES)
def test_sequential_goes_from_left_to_right(family):
    found = ran(family, unmasker="sequential")
    order = np.concatenate([event.positions for event in found.events])
    assert set(commits(found)) == {1}
    assert order.tolist() == sorted(order.tolist())


@pytest.mark.parametrize("rule", [dynamic(0.5, steps=3), {"unmasker": "sequential", "steps": 3}])
@pytest.mark.parametrize("prompt", [4, 6, 7])
def test_a_step_commits_no_more_than_the_masks_that_are_left(rule, prompt):
    """The prompt ends inside a block, whose steps are due more tokens than it has masks."""
    found = ran("gqa", prompt, **rule)
    assert found.ids[0, :prompt].tolist() == make_prompts(prompt)[0]
    positions = np.concatenate([event.positions for event in found.events])
    assert sorted(positions.tolist()) == list(range(prompt, prompt + len(positions)))


def test_d2_cache_that_may_omit_the_open_sub_block_is_refused():
    spec = make_spec(unmasker="fast_dllm_v2", cache="d2_cache", block_length=16)
    derive_plan(replace(spec, knobs={"d2_cache.current_k": 16}))
    few = {"d2_cache.current_k": 8}
    with pytest.raises(
        ValueError, match=r"^d2_cache\.current_k: fast_dllm_v2 .* is 16, .* unless refresh_interval"
    ):
        derive_plan(replace(spec, knobs=few))
    derive_plan(replace(spec, knobs=few | {"d2_cache.refresh_interval": 1}))
