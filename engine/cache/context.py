"""PolicyContext: what a policy is prepared from."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from engine.cache.calibration.drift_profile import DriftProfile, load_or_measure
from engine.models.base import ModelAdapter


def _no_report(done: int, total: int) -> None:
    pass


@dataclass(frozen=True)
class PolicyContext:
    """The checkpoint that a policy is prepared from, and drifts measured on it.

    `digest` identifies the checkpoint, `folder` is its path, None if it has none.
    `measure(base, quantity)` decodes calibration problems with the cache `base` and returns the
    drifts of each layer's rows in `q0` (queries of the first head) or `v`. `base` is the cache that
    the policy is stacked on. `kept` holds what policies derive from the checkpoint, for later runs.
    Work that takes seconds calls `report` with the layers done and their total. An exception that
    `report` raises ends the preparation; the next preparation goes on from there.
    """

    adapter: ModelAdapter
    digest: str
    folder: Path | None
    measure: Callable[[str, str], DriftProfile]
    base: str = "none"
    kept: dict[str, Any] = field(default_factory=dict, compare=False)
    report: Callable[[int, int], None] = _no_report

    def profile(self, quantity: str) -> DriftProfile:
        """The drifts under `base`: shipped with the checkpoint, cached, or measured now."""
        layers = self.adapter.info.layers
        return load_or_measure(self.folder, self.digest, self.base, quantity, layers, self.measure)
