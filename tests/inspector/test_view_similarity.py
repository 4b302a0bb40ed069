"""Similarity: the page is given every pair of steps, where it expects it."""

from dataclasses import replace

import numpy as np
import pytest

from engine.core.drift_codes import NOT_EVALUATED, decode
from inspector.views.similarity import change_per_step, similarity
from tests.inspector.conftest import small_race
from tests.inspector.unpacked import unpacked
from tests.support.looking import recorded


@pytest.fixture(scope="module")
def trace(session):
    longer = small_race(session, gen_length=32, block_length=16, steps=32).a
    return recorded(session, replace(longer, cache="none", record="layers"))


def test_the_pair_of_a_step_and_the_one_before_is_the_mean_drift(trace):
    view = similarity(trace)
    far, groups, steps = (unpacked(view[name]) for name in ("codes", "groups", "steps"))
    drift = decode(trace.arrays()["drift"])
    block = next(g for g, (lo, hi) in enumerate(groups) if hi - lo == 16)  # every token is in it
    lo, hi = groups[block]
    assert np.array_equal(steps, np.arange(trace.steps))
    pairs = np.array([t * (t + 1) // 2 + t - 1 for t in steps[1:]])
    got = decode(far[pairs][..., block])  # [S - 1, 2, L]
    want = drift[1:, :, :2, lo:hi].mean(-1).transpose(0, 2, 1)
    alike = lambda x, y: np.corrcoef(x.ravel(), y.ravel())[0, 1]  # noqa: E731
    assert np.abs(got - want).max() < 0.04  # of a sketch: (1 - c^2) / 8 a token
    assert alike(got, want) > 0.97
    for wrong in (want[:, ::-1], want[..., ::-1], np.roll(want, 1, 0)):
        assert alike(got, wrong) < 0.8


def test_a_step_is_itself(trace):
    far = unpacked(similarity(trace)["codes"])
    itself = [t * (t + 3) // 2 for t in range(trace.steps)]
    assert not far[itself].any()
    assert far.any()


def test_pairs_without_a_value_are_left_out_of_the_change():
    codes = np.full((6, 1), NOT_EVALUATED, np.uint8)
    assert np.isnan(change_per_step(codes, 3)).all()
    codes[4] = 10  # of steps 2 and 3
    assert change_per_step(codes, 3) == pytest.approx(decode(codes[4]))
    assert np.isnan(change_per_step(codes[:1], 1)).all()


def test_a_run_that_compared_no_steps_says_so(traces):
    with pytest.raises(ValueError, match="press Record"):
        similarity(traces["a"])
