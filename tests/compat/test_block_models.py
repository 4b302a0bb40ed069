"""SDAR's ranking as released, beside torch.topk over a whole block."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch

from engine.unmask.base import Candidates
from engine.unmask.methods.dynamic import Dynamic
from engine.unmask.methods.quota import Quota
from engine.unmask.methods.sequential import Sequential
from engine.unmask.schedule import Schedule
from tests.compat.block_models import ranked_by_topk

START = 20


def committed(unmasker, confidence, due):
    """Places in the block that a first step commits; known ones have confidence -inf."""
    masked = torch.isfinite(confidence)
    needs = masked.nonzero()[:, 0][None] + START
    score, count = confidence[masked][None], int(masked.sum())
    view = SimpleNamespace(
        needs=needs, real=torch.ones_like(needs, dtype=torch.bool), block_step=0,
        real_host=np.ones((1, count), bool), left=np.array([count]),
        block=slice(START, START + len(confidence)), order_mask=None,
    )  # fmt: skip
    unmasker.block_schedule = Schedule(-(-count // due), {})
    found = unmasker.commit(Candidates(torch.zeros_like(needs), score, score), view)
    return (needs[found.mask] - START).tolist()


@pytest.mark.parametrize("unmasker", [Quota(), Dynamic(threshold=1.0)])
@pytest.mark.parametrize("size", [8, 16, 32])
def test_of_equal_confidences_the_release_commits_those_of_topk(unmasker, size):
    confidence = torch.ones(size)
    confidence[:1] = -torch.inf
    confidence[2] = 0.5
    expected = sorted(confidence.topk(1).indices.tolist())
    assert expected != [1]
    assert committed(ranked_by_topk(unmasker), confidence, 1) == expected
    assert committed(unmasker, confidence, 1) == [1], "the engine takes the leftmost"


def test_all_above_the_threshold_are_committed():
    confidence = torch.tensor([0.9, -torch.inf, 0.7, 0.9, 0.2])
    assert committed(ranked_by_topk(Dynamic(threshold=0.6)), confidence, 1) == [0, 2, 3]


def test_other_rules_stay():
    rule = Sequential()
    assert ranked_by_topk(rule) is rule
