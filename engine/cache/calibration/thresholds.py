"""Thresholds: how far a row's query may drift in each layer before DARE recomputes the row."""

from __future__ import annotations

import math

import numpy as np

from engine.cache.calibration.drift_profile import DriftProfile

CAP = 0.95
FLOOR = 1e-5


def thresholds(profile: DriftProfile, shares: np.ndarray) -> tuple[float, ...]:
    """The quantile `shares` [layers] of each layer's drifts, at least FLOOR; -inf at share 0."""
    return tuple(
        max(profile.quantile(layer, share), FLOOR) if share else -math.inf
        for layer, share in enumerate(shares.tolist())
    )


def allocate(means: np.ndarray, qbar: float, temperature: float, cap: float = CAP) -> np.ndarray:
    """Reuse quantiles [layers] of mean `qbar` for layers that drift by `means` on average.

    A softmax gives layers with less drift more; the excess over `cap` is divided among the other
    layers in the same proportions. `cap` is at least `qbar`.
    """
    shares, free = np.full(len(means), cap), np.ones(len(means), bool)
    while free.any():
        scores = -means[free] / temperature
        weights = np.exp(scores - scores.max())
        rest = len(means) * qbar - shares[~free].sum()
        shares[free] = rest * weights / weights.sum()
        over = free & (shares > cap)
        if not over.any():
            break
        shares[over] = cap
        free &= ~over
    return shares
