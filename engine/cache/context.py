"""Ground: what a policy may prepare itself from."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from engine.cache.calibration.drift_profile import DriftProfile, obtain
from engine.models.base import ModelAdapter


@dataclass(frozen=True)
class PolicyContext:
    """What a policy may prepare itself from: the checkpoint, and drifts measured on it.

    `digest` names the checkpoint, `folder` is where it lies (None: nowhere);
    `measure(base, quantity)` decodes calibration problems by the cache `base` and returns how far
    each layer's rows drift in `q0` (queries of head 0) or `v`. `base` is what the policy that is
    being prepared stands on. What a policy makes of the checkpoint stays in `kept` for later runs.
    """

    adapter: ModelAdapter
    digest: str
    folder: Path | None
    measure: Callable[[str, str], DriftProfile]
    base: str = "none"
    kept: dict[str, Any] = field(default_factory=dict, compare=False)

    def profile(self, quantity: str) -> DriftProfile:
        """The drifts under `base`: shipped with the checkpoint, kept from before, or measured."""
        layers = self.adapter.info.layers
        return obtain(self.folder, self.digest, self.base, quantity, layers, self.measure)
