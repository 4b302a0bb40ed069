"""Share of the rows that each layer recomputes: a piecewise Gaussian (arXiv 2602.02544)."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import product

import numpy as np

DRIFTED = 0.05
LEAST = 0.01


@dataclass(frozen=True)
class Curve:
    """A rise from `first` to `peak` and a fall to `last`; `position` is the peak's layer / layers.

    Neither end exceeds the peak; all three are in (0, 1].
    """

    position: float
    first: float
    peak: float
    last: float

    def scaled(self, peak: float) -> Curve:
        """The same shape with another peak."""
        factor = peak / self.peak
        return replace(self, first=self.first * factor, peak=peak, last=self.last * factor)

    def ratios(self, layers: int, least: float = 0.0) -> tuple[float, ...]:
        """The share of each layer, [layers]; layers are counted from 1 as in the paper.

        Layers up to the peak get at least the share `least`, which must not exceed the peak. The
        released code has no such limit behind the peak.
        """
        peak = max(1.0, self.position * layers)
        left, right = math.log(self.first / self.peak), math.log(self.last / self.peak)
        out = []
        for layer in range(1, layers + 1):
            end, side = (1, left) if layer <= peak else (layers, right)
            away = (layer - peak) / (end - peak) if end != peak else 0.0
            ratio = self.peak * math.exp(side * away**2)
            out.append(max(ratio, least) if layer <= peak else ratio)
        return tuple(out)


PRESETS = {
    "llada": Curve(0.75, 0.03, 0.25, 0.13),
    "llada_1_5": Curve(0.80, 0.03, 0.25, 0.13),
    "dream": Curve(0.50, 0.05, 0.30, 0.25),
}


def preset(family: str) -> Curve:
    """The published curve of a model family, that of LLaDA-8B if it has none."""
    return PRESETS.get(family, PRESETS["llada"])


def check_below_peak(ratios: Mapping[str, float | None], peak: float) -> None:
    """Raise ValueError naming the knob of a ratio that is above the curve's peak."""
    for name, value in ratios.items():
        if value is not None and value > peak:
            raise ValueError(
                f"spa_cache.{name}: {value} exceeds the peak of {peak}; lower it or raise "
                "spa_cache.peak_ratio"
            )


def adapt(curve: Curve, peak: float | None, even: bool, given: Mapping[str, float | None]) -> Curve:
    """The curve with another `peak`, with ends as high (`even`), or with `given` values."""
    if peak is not None:
        curve = curve.scaled(peak)
    if even:
        curve = replace(curve, first=curve.peak, last=curve.peak)
    return replace(curve, **{name: value for name, value in given.items() if value is not None})


def fit(shares: np.ndarray) -> Curve:
    """The least-squares fit to the logarithms of the shares [layers] of rows that drift.

    Shares below 1 % count as 1 %.
    """
    logs = np.log(np.clip(shares, LEAST, 1.0))
    fits = (_sides(logs, peak) for peak in range(1, len(logs) + 1))
    _, peak, (top, left, right) = min(fits, key=lambda found: found[0])
    first, last = top + left * (peak > 1), top + right * (peak < len(logs))
    first, height, last = (min(math.exp(x), 1.0) for x in (first, top, last))
    return Curve(peak / len(logs), first, height, last)


def _sides(logs: np.ndarray, peak: int) -> tuple[float, int, tuple[float, float, float]]:
    """Squared error of the best fit with this `peak`, its height and its falls (at most 0)."""
    layers = len(logs)
    away = np.arange(1, layers + 1) - peak
    left = np.where(away <= 0, away / max(peak - 1, 1), 0.0) ** 2
    right = np.where(away > 0, away / max(layers - peak, 1), 0.0) ** 2
    best = (math.inf, peak, (0.0, 0.0, 0.0))
    for falls in product((True, False), repeat=2):
        columns = np.stack((np.ones(layers), left * falls[0], right * falls[1]), 1)
        found = np.linalg.lstsq(columns, logs, rcond=None)[0]
        error = float(((columns @ found - logs) ** 2).sum())
        if found[1] <= 0 and found[2] <= 0 and error < best[0]:
            best = (error, peak, (float(found[0]), float(found[1]), float(found[2])))
    return best
