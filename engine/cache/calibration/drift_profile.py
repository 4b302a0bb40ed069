"""DriftProfile: how far the rows of each layer drift from step to step, as log histograms."""

from __future__ import annotations

import contextlib
import zipfile
import zlib
from collections.abc import Callable
from dataclasses import dataclass, replace
from io import BytesIO
from pathlib import Path

import numpy as np

from engine.core.files import cache_path, write_atomically

BINS = 1024
LOWEST = 1e-7  # left edge of bin 1; bin 0 holds smaller drifts, the last bin ends at 2
FORMAT = 1


@dataclass(frozen=True)
class DriftProfile:
    """Drifts 1 - cos of a run's rows: `counts` [layers, BINS] int64, `totals` [layers] their sum.

    `base` is the cache under which they were measured, `quantity` the activation compared,
    `checkpoint` the digest of the weights, empty if unknown.
    """

    base: str
    quantity: str
    counts: np.ndarray
    totals: np.ndarray
    checkpoint: str = ""

    @property
    def means(self) -> np.ndarray:
        """Mean drift of each layer, [layers]."""
        return self.totals / np.maximum(self.counts.sum(1), 1)

    def quantile(self, layer: int, share: float) -> float:
        """The quantile `share` of the drifts of a layer's rows."""
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
    """Write a profile atomically."""
    data = BytesIO()
    np.savez_compressed(
        data, format=FORMAT, checkpoint=profile.checkpoint, base=profile.base,
        quantity=profile.quantity, counts=profile.counts, totals=profile.totals,
    )  # fmt: skip
    write_atomically(path, data.getvalue())


def load(path: Path, layers: int) -> DriftProfile:
    """Read a profile of a model with `layers` layers; ValueError names the file and the remedy."""
    try:
        with np.load(path, allow_pickle=False) as data:
            base, quantity, checkpoint = (str(data[n]) for n in ("base", "quantity", "checkpoint"))
            found = DriftProfile(base, quantity, data["counts"], data["totals"], checkpoint)
            fits = int(data["format"]) == FORMAT and found.counts.shape == (layers, BINS)
    except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile, zlib.error) as error:
        raise ValueError(f"calibration: {path} cannot be read ({error}); delete it") from None
    if not fits or found.totals.shape != (layers,):
        raise ValueError(f"calibration: {path} is of another model or version; delete it")
    return found


def shipped_path(folder: Path, base: str, quantity: str) -> Path:
    """The path of a profile in a checkpoint folder."""
    return folder / "calibration" / file_name(base, quantity)


def file_name(base: str, quantity: str) -> str:
    """The name of a profile's file."""
    return f"{base}-{quantity}.npz"


def load_or_measure(
    folder: Path | None,
    digest: str,
    base: str,
    quantity: str,
    layers: int,
    measure: Callable[[str, str], DriftProfile],
) -> DriftProfile:
    """A profile from a file (see `find`), else measured.

    A measured profile is written to the user's cache if possible; without a digest no files are
    used.
    """
    if not digest:
        return measure(base, quantity)
    if found := find(folder, digest, base, quantity, layers):
        return found
    profile = replace(measure(base, quantity), checkpoint=digest)
    with contextlib.suppress(OSError):
        save(profile, cache_path(digest, file_name(base, quantity)))
    return profile


def find(
    folder: Path | None, digest: str, base: str, quantity: str, layers: int
) -> DriftProfile | None:
    """A profile from the checkpoint's folder, else from the user's cache; None if neither has it.

    A file that is damaged or belongs to other weights than `digest` counts as missing. With an
    empty digest the weights are not known: a file in the folder counts as one of them.
    """
    paths = [] if folder is None else [shipped_path(folder, base, quantity)]
    if digest:
        paths.append(cache_path(digest, file_name(base, quantity)))
    wanted = base, quantity
    for path in paths:
        found = _read(path, layers)
        if found and (found.base, found.quantity) == wanted and digest in ("", found.checkpoint):
            return found
    return None


def _read(path: Path, layers: int) -> DriftProfile | None:
    try:
        return load(path, layers)
    except ValueError:
        return None
