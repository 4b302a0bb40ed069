"""Schedules of the public samplers, beside plain loops on small models."""

import pytest

from tests.compat.test_samplers import (
    DREAM,
    assert_same,
    decoded,
    shifted,
    started,
)
from tests.support.micro import model_of
from tests.support.plain_model import PlainModel, PlainRun, best, ranked


def carried_budget(length, steps, threshold) -> PlainRun:
    """Fast-dLLM's uncached sampler for Dream with `length` / `steps` tokens a step."""
    model, run, carried, step = PlainModel(model_of(DREAM)), started(length), 0, 0
    share = length // steps
    while step < steps:
        z = shifted(model.whole(run.ids))
        scores = {p: best(z[p])[0] for p in run.masks(0, len(run.ids))}
        order = ranked(scores)[: share + carried]
        kept = [p for n, p in enumerate(order) if n == 0 or scores[p] >= threshold]
        carried = len(order) - len(kept)
        if step == steps - 1 and carried:
            share, steps = 0, steps + 1
        run.commit({p: best(z[p])[1] for p in kept})
        step += 1
    return run


@pytest.mark.parametrize(("steps", "threshold"), [(4, 0.5), (4, None), (12, 0.5), (2, 0.0)])
def test_dreams_threshold_has_a_budget_that_is_carried_over(steps, threshold):
    settings = {"gen_length": 12, "block_length": 12, "steps": steps, "alg": "confidence_threshold"}
    expected = carried_budget(12, steps, 0.9 if threshold is None else threshold)
    if threshold is not None:
        settings["threshold"] = threshold
    found = decoded("dream_vanilla", DREAM, settings)
    assert_same(found, expected)
    assert (found.state.step_index > steps) == (steps == 4)
