"""Threshold, factor and frechet on fixed confidences, and Theorem 1 of Fast-dLLM."""

import itertools

import pytest
import torch

from engine.unmask.base import Candidates, commit_passing_prefix
from engine.unmask.methods.factor import Factor
from engine.unmask.methods.frechet import Frechet
from engine.unmask.methods.threshold import Threshold
from tests.support.micro import make_spec, run

SMALL = 1e-6


class View:
    def __init__(self, real):
        self.real = real


def accepted(rule, *rows):
    """The mask [B, n] that a rule commits, given rows of confidences."""
    score = torch.tensor(rows, dtype=torch.float64)
    candidates = Candidates(torch.zeros_like(score, dtype=torch.long), score, score)
    return rule.commit(candidates, View(score > -torch.inf)).mask


def count(rule, row):
    return int(accepted(rule, row).sum())


def random_rows(n=200, seed=0):
    generator = torch.Generator().manual_seed(seed)
    sizes = torch.randint(1, 9, (n,), generator=generator).tolist()
    return [(1 - torch.rand(k, generator=generator) ** 3).tolist() for k in sizes]


def is_leading(mask, row):
    """Whether a mask holds the best candidates of a row, at least one."""
    order = sorted(range(len(row)), key=lambda i: (-row[i], i))
    return mask[0, order].long().diff().le(0).all() and mask[0, order[0]]


@pytest.mark.parametrize("rule", [Threshold(), Threshold(threshold=0.4), Factor(), Frechet()])
def test_rules_commit_the_best_candidates_and_at_least_one(rule):
    for row in random_rows():
        assert is_leading(accepted(rule, row), row)


def test_a_passing_prefix_ends_before_its_first_failure():
    score = torch.tensor([[0.6, 0.9, 0.8, 0.7]])
    candidates = Candidates(torch.zeros(1, 4, dtype=torch.long), score, score)
    commit = commit_passing_prefix(candidates, lambda ranks, _: (ranks != 2)[None])
    assert commit.mask.tolist() == [[False, True, False, False]]


def test_a_lower_threshold_commits_a_superset():
    grew = False
    for row in random_rows():
        low, high = accepted(Threshold(threshold=0.5), row), accepted(Threshold(threshold=0.8), row)
        assert (low | ~high).all()
        grew |= bool((low & ~high).any())
    assert grew


def test_a_confidence_equal_to_the_threshold_is_committed():
    assert count(Threshold(threshold=0.75), [0.75, 0.9, 0.7]) == 2


@pytest.mark.parametrize(
    ("row", "k"), [([0.99, 0.2], 1), ([0.99, 0.98, 0.1], 2), ([1.0] * 5, 5), ([0.5], 1)]
)
def test_factor_on_fixed_rows(row, k):
    assert count(Factor(), row) == k


def test_factor_excludes_equality():
    assert count(Factor(factor=1.0), [1.0, 0.75, 0.75]) == 2
    assert count(Factor(factor=0.75), [0.875, 0.75]) == 1
    assert count(Factor(factor=0.75 + SMALL), [0.875, 0.75]) == 2


def test_a_larger_factor_commits_more():
    for row in random_rows():
        counts = [count(Factor(factor=g), row) for g in (SMALL, 0.5, 1.0, 2.0, 4.0)]
        assert counts == sorted(counts)
        worst = (len(row) + 1) * (1 - min(row))
        assert count(Factor(factor=worst + SMALL), row) == len(row)
        if max(row) < 1 - SMALL:
            assert counts[0] == 1


def test_a_larger_confidence_never_lowers_the_count():
    generator = torch.Generator().manual_seed(3)
    for row in random_rows(60):
        place = int(torch.randint(0, len(row), (1,), generator=generator))
        raised = [*row]
        raised[place] += (1 - raised[place]) / 2
        for rule in (Factor(), Frechet()):
            assert count(rule, raised) >= count(rule, row)


def test_rules_do_not_depend_on_the_order_of_positions():
    generator = torch.Generator().manual_seed(4)
    for row in random_rows(60):
        order = torch.randperm(len(row), generator=generator)
        shuffled = torch.tensor(row, dtype=torch.float64)[order].tolist()
        for rule in (Threshold(threshold=0.6), Factor(), Frechet()):
            assert torch.equal(accepted(rule, row)[:, order], accepted(rule, shuffled))


@pytest.mark.parametrize("rule", [Threshold(threshold=0.6), Factor(), Frechet()])
def test_sequences_of_a_batch_are_independent(rule):
    a, b, pad = [0.9, 0.99, 0.3], [0.2, 0.97, -torch.inf], -torch.inf
    both = accepted(rule, a, b)
    assert torch.equal(both[0], accepted(rule, a)[0])
    assert torch.equal(both[1, :2], accepted(rule, b[:2])[0])
    assert not both[1, 2]
    assert not accepted(rule, a, [pad] * 3)[1].any()


def random_joint(k, vocab, sharpness, generator):
    weights = torch.rand([vocab] * k, dtype=torch.float64, generator=generator) ** sharpness
    return weights / weights.sum()


def marginals(joint):
    axes = range(joint.ndim)
    return [joint.sum([a for a in axes if a != i]) if joint.ndim > 1 else joint for i in axes]


def joint_argmax(joint, places):
    """Jointly most probable values at `places`; the other variables are marginalized."""
    others = [a for a in range(joint.ndim) if a not in places]
    kept = joint.sum(others) if others else joint
    return [int(i) for i in torch.unravel_index(kept.argmax(), kept.shape)]


def test_committed_tokens_are_the_joint_argmax():
    generator, accepted_several = torch.Generator().manual_seed(5), 0
    for _ in range(400):
        k = int(torch.randint(2, 5, (1,), generator=generator))
        joint = random_joint(k, 3, 1 + 30 * torch.rand(1, generator=generator).item(), generator)
        sides = marginals(joint)
        row = [float(side.max()) for side in sides]
        for rule in (Factor(), Frechet()):
            places = accepted(rule, row)[0].nonzero()[:, 0].tolist()
            if len(places) == 1:
                continue
            accepted_several += 1
            assert joint_argmax(joint, places) == [int(sides[i].argmax()) for i in places]
    assert accepted_several > 100


def test_frechet_commits_everything_that_factor_one_commits():
    more = 0
    for row in random_rows(400):
        factor, frechet = accepted(Factor(), row), accepted(Frechet(), row)
        assert (frechet | ~factor).all()
        more += int((frechet & ~factor).sum())
    assert more > 0


@pytest.mark.parametrize("k", range(2, 7))
def test_the_bound_is_tight(k):
    """Just beyond the condition, the argmax of the product differs from the joint argmax."""
    epsilon = 1 / (k + 1) + 0.01
    delta = min(1 / (k + 1), k * (epsilon - 1 / (k + 1))) / 2
    joint = torch.zeros([2] * k, dtype=torch.float64)
    joint[(0,) * k] = 1 / (k + 1) - delta
    for j in range(k):
        joint[tuple(int(i == j) for i in range(k))] = 1 / (k + 1) + delta / k
    sides = marginals(joint)
    assert all(side[0] > 1 - epsilon for side in sides)
    assert joint_argmax(joint, range(k)) != [0] * k
    row = [float(side.max()) for side in sides]
    assert count(Factor(factor=1.0), row) < k
    assert count(Frechet(), row) < k
    assert count(Factor(factor=1.0 + (k + 1) * 0.01), row) == k


def test_total_variation_and_divergence_stay_below_the_theorems_bounds():
    generator, tested = torch.Generator().manual_seed(6), 0
    for k, _ in itertools.product((2, 3, 4), range(60)):
        joint = random_joint(k, 3, 1.0, generator) * 0.2
        joint[(0,) * k] += 0.8
        sides = marginals(joint)
        epsilon = max(1 - float(side[0]) for side in sides) + SMALL
        if (k + 1) * epsilon > 1:
            continue
        tested += 1
        product = _product(sides)
        assert (joint - product).abs().sum() / 2 < (3 * k - 1) * epsilon / 2
        e = torch.tensor(epsilon, dtype=torch.float64)
        entropy = -(e * e.log() + (1 - e) * (1 - e).log())
        kl_divergence = torch.special.xlogy(joint, joint / product).sum()
        assert kl_divergence < (k - 1) * (entropy + e * torch.log(torch.tensor(2.0)))
    assert tested > 50


def _product(sides):
    out = sides[0]
    for side in sides[1:]:
        out = out[..., None] * side
    return out


def test_a_threshold_above_one_commits_one_token_a_step(model):
    for cache in ("none", "dual"):
        knobs = {"threshold.threshold": 1.5}
        strict = run(model, make_spec(cache=cache, unmasker="threshold", knobs=knobs))
        plain = run(model, make_spec(cache=cache))
        assert strict.reveals == plain.reveals
        assert len(strict.events) == len(plain.events) == 16


def test_a_threshold_of_zero_takes_one_step_a_block(model):
    knobs = {"threshold.threshold": 0.0}
    events = run(model, make_spec(unmasker="threshold", knobs=knobs)).events
    assert [len(e.positions) for e in events] == [4] * 4


def test_ties_go_to_the_lower_position():
    assert accepted(Factor(factor=SMALL), [0.5, 0.9, 0.9])[0].tolist() == [False, True, False]
    assert accepted(Factor(factor=SMALL), [0.9] * 300)[0].nonzero().tolist() == [[0]]
