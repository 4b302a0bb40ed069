"""Certainty density, decoding with it, and the even schedule."""

import math
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from engine.cache.calibration.density import density
from engine.catalog import make_unmasker
from engine.config.plan import quota
from engine.unmask.base import Candidates
from engine.unmask.schedule import even_tokens_due
from tests.support.micro import LogitTap, make_spec, model_of, run

P, T = 6, 22


def sum_of_kernels(known, sigma):
    """The density of one sequence, summed position by position."""
    size = len(known)
    whole = [True] * size + known + [known[-1]] * size
    every = sum(math.exp(-(d**2) / (2 * sigma**2)) for d in range(-3 * size, 3 * size))
    return [
        sum(math.exp(-((i + size - j) ** 2) / (2 * sigma**2)) for j, on in enumerate(whole) if on)
        / every
        for i in range(size)
    ]


@pytest.mark.parametrize(("size", "sigma"), [(1, 2.0), (5, 0.5), (16, 10.0), (33, 3.0)])
def test_the_density_is_a_sum_of_gaussian_kernels(size, sigma):
    known = torch.rand(6, size, generator=torch.Generator().manual_seed(size)) < 0.5
    known[0], known[1] = True, False
    found = density(known, sigma)
    sums = [sum_of_kernels(row.tolist(), sigma) for row in known]
    expected = torch.tensor(sums, dtype=torch.float64)
    torch.testing.assert_close(found, expected, atol=1e-12, rtol=0)
    assert found.dtype == torch.float64
    assert (found[0] > found[1]).all()


def test_positions_beyond_the_end_count_like_the_last_one():
    known = torch.zeros(2, 8, dtype=torch.bool)
    known[1, -1] = True
    without, with_last = density(known, 2.0)
    own = math.exp(-(1**2) / 8) / sum(math.exp(-(d**2) / 8) for d in range(-24, 24))
    assert without.diff().max() < 0
    assert with_last[-2] - without[-2] > own * 1.5


class CandidateTap(LogitTap):
    """Records the view, the candidates' positions and their confidences at each step."""

    def record(self, view, plan, logits, candidates):
        real = view.real[0]
        self.steps.append((view, view.needs[0, real].numpy(), candidates.confidence[0, real]))


@pytest.mark.parametrize(("block", "steps"), [(4, 16), (16, 16), (16, 5), (8, 4)])
def test_certainty_ranks_by_confidence_times_density(model, block, steps):
    changes = {"block_length": block, "steps": steps, "knobs": {"certainty.sigma": 3.0}}
    tap = CandidateTap()
    result = run(model, make_spec(unmasker="certainty", **changes), None, tap)
    different = 0
    for event, (view, places, confidence) in zip(result.events, tap.steps, strict=True):
        near = sum_of_kernels((~view.masked_host[0, P:]).tolist(), 3.0)
        score = confidence.numpy() * [near[p - P] for p in places]
        count = len(event.positions)
        best = places[np.argsort(-score, kind="stable")[:count]]
        assert sorted(event.positions) == sorted(best)
        most_confident = places[np.argsort(-confidence.numpy(), kind="stable")[:count]]
        different += sorted(most_confident) != sorted(best)
    counts = [len(e.positions) for e in result.events]
    assert counts == list(quota(block, steps * block // 16)) * (16 // block)
    assert different or block == 4


def test_a_wide_kernel_gives_quota_and_a_narrow_one_left_to_right():
    def order(unmasker, knobs=None):
        spec = make_spec(unmasker=unmasker, block_length=16, knobs=knobs or {})
        return [int(e.positions[0]) for e in run(model_of("mha"), spec).events]

    def inversions(places):
        return sum(a > b for i, a in enumerate(places) for b in places[i:])

    narrow = order("certainty", {"certainty.sigma": 0.5})
    usual = order("certainty", {"certainty.sigma": 3.0})
    assert inversions(narrow) < inversions(usual) < inversions(order("quota"))
    assert order("certainty", {"certainty.sigma": 1000.0}) == order("quota") != usual


def test_eos_suppression_by_confidence_commits_every_position():
    spec = make_spec(unmasker="certainty", block_length=16, eos_suppress="confidence", steps=4)
    result = run(model_of("gqa"), spec)
    assert sorted(p for e in result.events for p in e.positions) == list(range(P, T))


def test_ends_that_are_ranked_last_go_from_left_to_right():
    """Their score is the lowest number, which a density would rank by its distance."""
    rule = make_unmasker(make_spec(unmasker="certainty", knobs={"certainty.sigma": 1.0}))
    rule.start(None, 4)
    real = torch.ones(1, 4, dtype=torch.bool)
    view = SimpleNamespace(
        run=SimpleNamespace(prompt_length=2), masked=torch.tensor([[False] * 2 + [True] * 4]),
        needs=torch.arange(2, 6)[None], real=real, real_host=real.numpy(), left=np.array([4]),
        block=slice(2, 6), block_step=0,
    )  # fmt: skip
    score = torch.full((1, 4), torch.finfo(torch.float32).min)
    found = rule.commit(Candidates(torch.ones(1, 4, dtype=torch.long), score, score), view)
    assert found.mask.tolist() == [[True, False, False, False]]


@pytest.mark.parametrize(("opened", "steps"), [(8, 4), (7, 3), (3, 5), (16, 1), (5, 5)])
def test_the_schedule_gives_the_quotas_if_each_is_met(opened, steps):
    left, found = opened, []
    for step in range(steps):
        found.append(int(even_tokens_due(np.array([opened]), np.array([left]), steps, step)[0]))
        left -= found[-1]
    assert found == list(quota(opened, steps))
    assert left == 0


def test_the_schedule_never_stalls_and_makes_up_for_missed_tokens():
    noise = np.random.default_rng(0)
    late = 0
    for _ in range(200):
        opened, steps = int(noise.integers(1, 30)), int(noise.integers(1, 12))
        left = opened
        for step in range(opened + steps):
            if not left:
                break
            due = int(even_tokens_due(np.array([opened]), np.array([left]), steps, step)[0])
            through = sum(quota(opened, steps)[: step + 1])
            assert due == max(1, through - (opened - left))
            left -= min(due, int(noise.integers(1, 4)))
        assert left == 0
        late += step > steps
    assert late


def test_tokens_filled_by_the_end_of_text_rule_are_not_due_again():
    assert even_tokens_due(np.array([16]), np.array([4]), 4, 1).tolist() == [4]
    assert even_tokens_due(np.array([16, 16]), np.array([13, 16]), 4, 1).tolist() == [5, 8]
