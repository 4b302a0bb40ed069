"""Statistics of paired runs: agreement of tokens, exact McNemar test, bootstrap intervals."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

RESAMPLES = 2_000
QUANTILES = (0.0, 0.25, 0.5, 0.75, 1.0)


def agreement(a: Sequence[int], b: Sequence[int]) -> float:
    """Share of positions of the longer answer with the same token in both; 1 if both are empty."""
    longest = max(len(a), len(b))
    return sum(x == y for x, y in zip(a, b, strict=False)) / longest if longest else 1.0


def discordant(pairs: Iterable[tuple[object, object]]) -> tuple[int, int]:
    """Gained and lost: pairs of which only the second is true, and of which only the first is."""
    both = [(bool(a), bool(b)) for a, b in pairs]
    return both.count((False, True)), both.count((True, False))


def mcnemar(gained: int, lost: int) -> float:
    """Two-sided p-value of the exact McNemar test for `gained` and `lost` discordant pairs."""
    n = gained + lost
    tail = sum(math.comb(n, k) for k in range(min(gained, lost) + 1)) / 2**n
    return min(1.0, 2 * tail)


def bootstrap_interval(
    values: Sequence[float],
    confidence: float = 0.95,
    seed: int = 0,
    statistic: Callable[..., NDArray[np.float64]] = np.mean,
) -> tuple[float, float]:
    """Percentile bootstrap interval of a `statistic` of `values`, which are not empty.

    RESAMPLES samples with replacement are drawn from `seed`. `statistic` is one of numpy's, such as
    np.mean and np.median: it takes samples [RESAMPLES, n] and `axis`.
    """
    data, rng = np.asarray(values, float), np.random.default_rng(seed)
    found = statistic(rng.choice(data, (RESAMPLES, len(data))), axis=1)
    low, high = np.quantile(found, ((1 - confidence) / 2, (1 + confidence) / 2))
    return float(low), float(high)


def quantiles(values: Sequence[float]) -> list[float]:
    """The smallest value, the quartiles and the largest value of `values`, which are not empty."""
    return [float(one) for one in np.quantile(np.asarray(values, float), QUANTILES)]
