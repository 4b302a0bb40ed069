"""Quota's random order: uniform, drawn once a block and planned before the forward."""

import numpy as np
import pytest
import torch

from engine.unmask.methods.quota import Quota
from tests.support.micro import make_spec, model_of, run

RANDOM = {"quota.score": "random"}


@pytest.mark.parametrize("cache", ["none", "dual", "dllm_cache"])
def test_a_random_order_depends_on_the_seed_and_not_on_the_cache(cache):
    def reveal(**changes):
        result = run(model_of("mha"), make_spec(**{"steps": 8, "block_length": 8} | changes))
        return [e.positions.tolist() for e in result.events]

    first = reveal(knobs=RANDOM)
    assert first == reveal(knobs=RANDOM, cache=cache)
    assert first != reveal(knobs=RANDOM, seed=1)
    assert first != reveal()


def orders(blocks, steps=4, masked=None, size=4):
    """The order of reveal of each of many blocks, as tuples."""
    rule, noise = Quota(score="random"), [torch.Generator().manual_seed(7)]
    rule.start(None, steps)
    for _ in range(blocks):
        open_ = np.ones((1, size), bool) if masked is None else masked.copy()
        found = []
        for step in range(steps):
            (now,) = rule.planned_order(open_, slice(0, size), step, noise)
            open_[0, now] = False
            found += now.tolist()
        yield tuple(found)


def test_random_orders_are_uniformly_distributed():
    counts = {}
    for order in orders(4800):
        counts[order] = counts.get(order, 0) + 1
    assert len(counts) == 24
    assert sum((n - 200) ** 2 / 200 for n in counts.values()) < 60  # 23 degrees, one in 30,000
    assert max(counts.values()) > min(counts.values())


def test_a_random_order_follows_the_quota_and_omits_given_tokens():
    masked = np.array([[True, False, True, True, False, True]])
    for order in orders(20, steps=2, masked=masked, size=6):
        assert sorted(order) == [0, 2, 3, 5]
    rule, noise = Quota(score="random"), [torch.Generator().manual_seed(1)]
    rule.start(None, 3)
    for step, due in enumerate((2, 1, 1)):
        (now,) = rule.planned_order(masked, slice(0, 6), step, noise)
        masked[0, now] = False
        assert len(now) == due
    both = np.array([[True] * 6, [False] * 6])
    assert [len(now) for now in rule.planned_order(both, slice(0, 6), 0, noise * 2)] == [2, 0]
    assert Quota().planned_order(masked, slice(0, 6), 0, noise) is None
