"""Proposals: the distribution of sampled tokens, the scores and the use of noise."""

import numpy as np
import pytest
import torch

from engine.unmask.proposals import propose
from tests.support.micro import make_spec, run

LOGITS = torch.tensor([0.3, -1.0, 1.2, 0.0, 0.7, -0.4], dtype=torch.float64)
CRITICAL = 25.7  # chi-square with 5 degrees of freedom, one in ten thousand


def proposals(temperature, n=20_000, seed=0, score="confidence"):
    real = torch.ones(1, n, dtype=torch.bool)
    noise = [torch.Generator().manual_seed(seed)]
    return propose(LOGITS.expand(1, n, 6), real, score, temperature, noise)


def chi_square(ids, law):
    counts = torch.bincount(ids.flatten(), minlength=6).double()
    expected = law * ids.numel()
    return ((counts - expected).square() / expected).sum().item()


@pytest.mark.parametrize("temperature", [0.5, 1.0, 2.0])
def test_sampled_tokens_follow_the_softmax_at_the_temperature(temperature):
    ids = proposals(temperature).ids
    assert chi_square(ids, (LOGITS / temperature).softmax(-1)) < CRITICAL
    assert chi_square(ids, (LOGITS / temperature / 1.2).softmax(-1)) > CRITICAL


def test_temperature_zero_is_the_argmax_without_noise():
    assert (proposals(0.0, seed=1).ids == 2).all()
    assert len(proposals(0.1, seed=1).ids.unique()) > 1


def test_confidence_is_of_the_unfiltered_distribution():
    for temperature in (0.3, 3.0):
        found = proposals(temperature)
        expected = LOGITS.softmax(-1)[found.ids]
        assert torch.equal(found.confidence, expected)
        assert torch.equal(found.score, found.confidence)


@pytest.mark.parametrize("score", ["margin", "entropy"])
def test_scores_follow_their_definitions(score):
    p = LOGITS.softmax(-1)
    first, second = p.sort(descending=True).values[:2]
    expected = {"margin": first - second, "entropy": (p * p.log()).sum()}[score]
    found = proposals(0.0, n=3, score=score)
    torch.testing.assert_close(found.score, expected.expand(1, 3))
    torch.testing.assert_close(found.confidence, p.max().expand(1, 3))


def test_entropy_is_finite_with_a_zero_probability():
    logits = torch.tensor([[[0.0, -torch.inf, 1.0]]], dtype=torch.float64)
    found = propose(logits, torch.ones(1, 1, dtype=torch.bool), "entropy", 0.0, [])
    assert torch.isfinite(found.score).all()


def test_the_random_score_draws_no_noise():
    noise = [torch.Generator().manual_seed(3)]
    real = torch.ones(1, 4, dtype=torch.bool)
    found = propose(LOGITS.expand(1, 4, 6), real, "random", 0.0, noise)
    assert torch.equal(found.score, found.confidence)
    assert torch.equal(noise[0].get_state(), _after_drawing(3, 0).get_state())


def test_padding_rows_rank_last_and_draw_no_noise():
    logits = LOGITS.expand(2, 4, 6)
    real = torch.tensor([[True, True, False, False], [True] * 4])
    noise = [torch.Generator().manual_seed(s) for s in (1, 2)]
    found = propose(logits, real, "confidence", 1.0, noise)
    alone = propose(
        logits[:1, :2], real[:1, :2], "confidence", 1.0, [torch.Generator().manual_seed(1)]
    )
    assert torch.equal(found.ids[0, :2], alone.ids[0])
    assert (found.score[0, 2:] == -torch.inf).all()
    assert torch.equal(noise[0].get_state(), _after_drawing(1, 2 * 6).get_state())


def test_padding_rows_between_real_ones_change_nothing():
    real = torch.tensor([[True, False, True, True]])
    found = proposals_of(LOGITS.expand(1, 4, 6), real, 4)
    alone = proposals_of(LOGITS.expand(1, 3, 6), torch.ones(1, 3, dtype=torch.bool), 4)
    assert torch.equal(found.ids[real], alone.ids[0])
    ids = [int(proposals_of(LOGITS.expand(1, 4, 6), real, s).ids[0, 3]) for s in range(20)]
    assert len(set(ids)) > 1


def proposals_of(logits, real, seed):
    return propose(logits, real, "confidence", 1.0, [torch.Generator().manual_seed(seed)])


def _after_drawing(seed, n):
    generator = torch.Generator().manual_seed(seed)
    torch.rand(n, dtype=torch.float64, generator=generator)
    return generator


@pytest.mark.parametrize("cache", ["none", "dual"])
def test_a_run_is_determined_by_its_seed(model, cache):
    spec = make_spec(temperature=1.5, unmasker="threshold", cache=cache)
    a, b = run(model, spec), run(model, spec)
    assert np.array_equal(a.ids, b.ids)
    for x, y in zip(a.events, b.events, strict=True):
        assert np.array_equal(x.positions, y.positions)
        assert np.array_equal(x.confidence, y.confidence)
    other = run(model, make_spec(temperature=1.5, unmasker="threshold", cache=cache, seed=9))
    assert not np.array_equal(a.ids, other.ids)


def test_greedy_runs_ignore_the_seed(model):
    assert np.array_equal(run(model, make_spec(seed=1)).ids, run(model, make_spec(seed=2)).ids)
