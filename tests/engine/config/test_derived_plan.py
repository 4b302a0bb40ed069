"""The derived plan against the forwards of runs."""

import pytest

from engine.catalog import derive_plan, make_unmasker
from engine.config.plan import derive
from tests.support.micro import make_spec, model_of, run


def plan_of(spec):
    return derive(spec, make_unmasker(spec).scheduled)


@pytest.mark.parametrize("steps", [4, 8, 12, 16, 32])
@pytest.mark.parametrize("cache", ["none", "dual"])
def test_scheduled_forwards_are_predicted_exactly(steps, cache):
    spec = make_spec(steps=steps, cache=cache)
    plan, events = plan_of(spec), run(model_of("mha"), spec).events
    assert plan.min_forwards == plan.max_forwards == len(events)
    owed = [n for n in plan.tokens_per_step if n]
    assert [len(e.positions) for e in events] == owed * plan.blocks
    assert plan.steps_per_block * plan.blocks == steps


@pytest.mark.parametrize("threshold", [0.0, 0.3, 0.9, 1.5])
def test_other_forwards_lie_within_the_bounds(threshold):
    spec = make_spec(unmasker="threshold", knobs={"threshold.threshold": threshold})
    plan, events = plan_of(spec), run(model_of("gqa"), spec).events
    assert (plan.min_forwards, plan.max_forwards) == (4, 16)
    assert plan.min_forwards <= len(events) <= plan.max_forwards
    if threshold in (0.0, 1.5):
        assert len(events) == {0.0: plan.min_forwards, 1.5: plan.max_forwards}[threshold]


def test_given_tokens_are_counted_by_the_plan():
    fixed = ((0, 9), (1, 9), *((i, 9) for i in range(4, 8)))
    for changes in ({"steps": 8}, {"steps": 16}, {"unmasker": "threshold"}):
        spec = make_spec(fixed=fixed, **changes)
        plan, events = plan_of(spec), run(model_of("mha"), spec).events
        assert plan.min_forwards <= len(events) <= plan.max_forwards


@pytest.mark.parametrize("eos", ["fill_safe", "fill_eager"])
def test_an_early_end_may_save_all_but_one_forward(eos):
    assert plan_of(make_spec(eos=eos)).min_forwards == 1
    assert plan_of(make_spec(eos=eos)).max_forwards == 16


@pytest.mark.parametrize(
    ("unmasker", "knobs"),
    [
        ("quota", {}),
        ("dynamic", {"dynamic.threshold": 2.0}),
        ("dream", {"dream.schedule": "released"}),
        ("dream", {"dream.alg": "origin"}),
    ],
)
def test_a_cache_that_leaves_tokens_of_a_step_to_later_ones_is_planned(unmasker, knobs):
    few = {"cache": "d2_cache", "knobs": {"d2_cache.current_k": 1, **knobs}}
    spec = make_spec(steps=4, unmasker=unmasker, **few)
    (plan, _), events = derive_plan(spec), run(model_of("mha"), spec).events
    assert spec.steps < len(events) <= plan.max_forwards
    assert plan.min_forwards <= len(events)
    assert plan.tokens_per_step is None
