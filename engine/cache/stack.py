"""Stack: a policy that chooses rows within layers, on one that chooses the rows of a step."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from torch import Tensor

from engine.cache.base import (
    CachePolicy,
    Ground,
    LayerPlan,
    LayerProbe,
    RunInfo,
    StepPlan,
    StepView,
)
from engine.cache.store import Site


@dataclass
class Stack(CachePolicy):
    """`window` decides what enters a step, `reuse` what of it each layer recomputes.

    Raises ValueError where `reuse` is not made to stand on `window`.
    """

    window: CachePolicy
    reuse: CachePolicy

    def __post_init__(self) -> None:
        if self.window.name not in self.reuse.stackable_on:
            raise ValueError(
                f"cache: {self.reuse.name} cannot stand on {self.window.name}: both would own the "
                f"same rows; it stands on {', '.join(self.reuse.stackable_on) or 'nothing'}"
            )

    def prepare(self, ground: Ground) -> None:
        """Prepare both."""
        self.window.prepare(ground)
        self.reuse.prepare(ground)

    def sites(self, run: RunInfo) -> tuple[Site, ...]:
        """What either keeps."""
        both = (*self.window.sites(run), *self.reuse.sites(run))
        return tuple({site.name: site for site in both}.values())

    def start(self, run: RunInfo) -> None:
        """Start both."""
        super().start(run)
        self.window.start(run)
        self.reuse.start(run)

    def watch(self, step: int, masked: np.ndarray, block: slice) -> np.ndarray | None:
        """What the window watches; a policy within layers watches nothing."""
        return self.window.watch(step, masked, block)

    def begin_step(self, view: StepView) -> StepPlan:
        """The window's plan; `reuse` is told of the step."""
        self.reuse.begin_step(view)
        return self.window.begin_step(view)

    def plan(self, layer: int, probe: LayerProbe) -> LayerPlan:
        """The layer plan of `reuse`."""
        return self.reuse.plan(layer, probe)

    def end_step(self, view: StepView, confidence: Tensor, committed: Tensor) -> None:
        """Tell both."""
        self.window.end_step(view, confidence, committed)
        self.reuse.end_step(view, confidence, committed)

    @classmethod
    def exact(cls) -> Stack:
        """A stack has no settings of its own; its parts have."""
        raise NotImplementedError
