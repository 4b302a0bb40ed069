"""DriftProfile: how far each layer's rows move from step to step, as histograms on a log scale."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

BINS = 1024
LOWEST = 1e-7  # left edge of bin 1; bin 0 holds what is below, drifts end at 2
FORMAT = 1


@dataclass(frozen=True)
class DriftProfile:
    """Drifts 1 - cos of a run's rows: `counts` [layers, BINS] int64, `totals` [layers] their sum.

    `base` is the cache under which they were measured, `quantity` what was compared.
    """

    base: str
    quantity: str
    counts: np.ndarray
    totals: np.ndarray

    @property
    def means(self) -> np.ndarray:
        """Mean drift of each layer, [layers]."""
        return self.totals / np.maximum(self.counts.sum(1), 1)

    def quantile(self, layer: int, share: float) -> float:
        """The drift below or at which `share` of a layer's rows lie."""
        reached = self.counts[layer].cumsum()
        wanted = share * reached[-1]
        return float(edges()[1:][np.searchsorted(reached, wanted)])

    def beyond(self, drift: float) -> np.ndarray:
        """Share of each layer's rows that drift by more than `drift`, [layers]."""
        above = edges()[:-1] >= drift
        return self.counts[:, above].sum(1) / np.maximum(self.counts.sum(1), 1)


def edges() -> np.ndarray:
    """Bin edges [BINS + 1]: 0, then evenly spaced in the logarithm up to 2."""
    return np.concatenate(([0.0], np.geomspace(LOWEST, 2.0, BINS)))


def histogram(drifts: np.ndarray) -> np.ndarray:
    """Counts [BINS] of drifts in 0 to 2."""
    return np.histogram(np.clip(drifts, 0.0, 2.0), edges())[0].astype(np.int64)


def save(profile: DriftProfile, path: Path) -> None:
    """Write a profile; the file appears whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_suffix(".part")
    with part.open("wb") as file:
        np.savez_compressed(
            file, format=FORMAT, base=profile.base, quantity=profile.quantity,
            counts=profile.counts, totals=profile.totals,
        )  # fmt: skip
    part.replace(path)


def load(path: Path, layers: int) -> DriftProfile:
    """Read a profile of a model with `layers` layers; ValueError names the file and the remedy."""
    try:
        with np.load(path, allow_pickle=False) as data:
            found = DriftProfile(
                str(data["base"]), str(data["quantity"]), data["counts"], data["totals"]
            )
            fits = int(data["format"]) == FORMAT and found.counts.shape == (layers, BINS)
    except (OSError, ValueError, KeyError, EOFError) as error:
        raise ValueError(f"calibration: {path} cannot be read ({error}); delete it") from None
    if not fits or found.totals.shape != (layers,):
        raise ValueError(f"calibration: {path} is of another model or version; delete it")
    return found
