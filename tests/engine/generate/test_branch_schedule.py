"""Schedules of branches: they continue the parent's, with as many tokens a step."""

import numpy as np
import pytest

from engine.trace.trace import Trace
from tests.support.branching import RANDOM, WIDTH, branch, make, record, tail, tokens_per_step
from tests.support.micro import EOS, MASK

FILLED = {"eos": "fill_safe", "unmasker": "sequential", "gen_length": 32, "steps": 8}


@pytest.mark.parametrize(
    "changes",
    [{"block_length": 32, "steps": 4, "fixed": ((0, 5), (20, EOS))},
     {"block_length": 16, "steps": 6, "fixed": ((22, EOS),)}],
)  # fmt: skip
def test_the_schedule_continues_the_parents_after_an_end_of_text_fill(changes):
    """The number of known tokens alone would give another schedule."""
    spec = make(**FILLED | changes)
    parent = record(spec)
    filled = np.isnan(parent.arrays()["commit_confidence"]).sum()
    assert filled > 4
    for step in range(parent.steps):
        assert tail(branch(parent, step)) == tail(parent, step)
        assert tail(branch(record(spec, most=step), step)) == tail(parent, step)


def test_remasking_keeps_the_number_of_tokens_a_step():
    parent = record(make())
    known = np.flatnonzero(parent.canvas_at(6)[WIDTH:] != MASK).tolist()
    assert tokens_per_step(branch(parent, 6)) == [2, 2]
    first, second = [o for o in known if o < 8], [o for o in known if o >= 8]
    assert tokens_per_step(branch(parent, 6, *((o, -1) for o in first[:4]))) == [2, 2, 2, 2]
    assert tokens_per_step(branch(parent, 6, *((o, -1) for o in second[:2]))) == [2, 2, 2]
    assert tokens_per_step(branch(parent, 6, *((o, -1) for o in second))) == [2, 2, 2, 2]


def test_another_schedule_starts_from_the_number_of_known_tokens():
    parent = record(make())
    assert tokens_per_step(branch(parent, 2, steps=16)) == [1] * 12
    assert tokens_per_step(branch(record(make(steps=16)), 4, steps=8)) == [2] * 6
    assert tokens_per_step(branch(parent, 2, steps=4)) == [4, 4, 4]
    assert tokens_per_step(branch(parent, 3, block_length=16, steps=8)) == [2] * 5
    assert tokens_per_step(branch(record(make(unmasker="threshold")), 2)) == [1] * 14
    threshold = record(make(unmasker="threshold", knobs={"threshold.threshold": 2.0}))
    assert tokens_per_step(branch(threshold, 4, unmasker="quota", knobs={})) == [2] * 6


@pytest.mark.parametrize(
    "changes",
    [
        {"steps": 6, "eos": "fill_eager", "fixed": ((6, EOS),)},
        {"stop": ("33",), "fixed": ((4, 33),), "unmasker": "sequential"},
    ],
)
def test_a_branch_of_a_branch_repeats_the_first_run(changes):
    parent = record(make(**changes))
    child = branch(parent, 1)
    for step in range(child.steps):
        assert tail(branch(child, step)) == tail(parent, 1 + step)
    steps = parent.arrays()["block_step"].tolist()
    assert child.arrays()["block_step"].tolist() == steps[1:]


def test_a_branch_of_a_branch_continues_blocks_that_its_parent_did_not_reach():
    parent = record(make())
    known = np.flatnonzero(parent.canvas_at(6)[WIDTH : WIDTH + 8] != MASK).tolist()
    child = branch(parent, 6, *((o, -1) for o in known[:4]), most=1)
    assert tokens_per_step(child) == [2]
    assert tokens_per_step(branch(child, 1)) == [2, 2, 2]


def test_the_schedule_of_a_branch_is_kept_in_its_file():
    parent = record(make(block_length=16, steps=16))
    child = branch(parent, 14)
    assert child.arrays()["block_step"].tolist() == [14, 15]
    read = Trace.from_bytes(child.to_bytes())
    assert tail(branch(read, 1)) == tail(parent, 15)


def test_a_random_order_is_drawn_again_with_the_same_schedule():
    parent = record(make(knobs=RANDOM, steps=6))
    trace = branch(parent, 1)
    assert tokens_per_step(trace) == tokens_per_step(parent, 1)
    left = lambda run, step: sorted(p for _, found in tail(run, step) for p, _ in found)  # noqa: E731
    assert left(trace, 0) == left(parent, 1)
    assert tail(branch(parent, 1)) == tail(trace)
    assert tail(branch(parent, 1, seed=4)) != tail(trace)
