"""Statistics of paired runs, against references computed here."""

from itertools import product

import numpy as np
import pytest

from engine.batch.statistics import agreement, bootstrap_interval, discordant, mcnemar, quantiles


@pytest.mark.parametrize(
    ("a", "b", "share"),
    [([], [], 1), ([1], [], 0), ([1, 2], [1, 2], 1), ([1, 2, 3, 4], [1, 9, 3], 0.5)],
)
def test_agreement_is_of_the_longer_answer(a, b, share):
    assert agreement(a, b) == agreement(b, a) == share


@pytest.mark.parametrize(("gained", "lost"), [(0, 0), (0, 5), (1, 4), (3, 3), (7, 2)])
def test_the_paired_test_counts_what_is_as_extreme(gained, lost):
    """Of all ways in which as many fair coins can fall, those at least as uneven."""
    n = gained + lost
    uneven = [abs(2 * sum(coins) - n) for coins in product((0, 1), repeat=n)]
    extreme = sum(one >= abs(gained - lost) for one in uneven)
    assert mcnemar(gained, lost) == pytest.approx(extreme / 2**n)


def test_only_discordant_pairs_are_gained_or_lost():
    pairs = [(True, True), (False, False), (False, True), (True, False), (False, True), (None, 1)]
    assert discordant(pairs) == (3, 1)


def test_the_interval_is_that_of_the_mean_and_is_repeatable():
    rng = np.random.default_rng(5)
    values = rng.normal(0.7, 0.2, 400)
    low, high = bootstrap_interval(values)
    half = 1.96 * values.std(ddof=1) / 20
    assert low == pytest.approx(values.mean() - half, abs=0.1 * half)
    assert high == pytest.approx(values.mean() + half, abs=0.1 * half)
    assert bootstrap_interval(values) == (low, high)
    assert bootstrap_interval(values, 0.5)[1] < high
    assert bootstrap_interval([0.25] * 9) == (0.25, 0.25)


def test_an_interval_contains_the_truth_as_often_as_it_says():
    rng, hits = np.random.default_rng(6), 0
    for _ in range(100):
        low, high = bootstrap_interval(rng.random(60) ** 2, 0.9)
        hits += low <= 1 / 3 <= high
    assert 80 <= hits <= 97


def test_quantiles_are_smallest_quartiles_and_largest():
    assert quantiles([4, 0, 2, 1, 3]) == [0, 1, 2, 3, 4]


def test_an_interval_of_medians_is_not_pulled_by_one_large_value():
    values = [1.0, 1.1, 0.9, 1.05, 0.95, 1.0, 30.0]
    low, high = bootstrap_interval(values, statistic=np.median)
    assert 0.9 <= low <= 1.0 <= high <= 1.1
    assert bootstrap_interval(values)[1] > 10
