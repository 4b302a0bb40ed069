"""Stack: a policy that chooses rows within layers, on one that chooses the rows of a step."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from torch import Tensor

from engine.cache.base import (
    CachePolicy,
    LayerPlan,
    LayerProbe,
    PolicyContext,
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

    @property
    def follows_order(self) -> bool:
        """As the window does."""
        return self.window.follows_order

    def check(self, block_length: int, known_order: bool) -> None:
        """Check both."""
        self.window.check(block_length, known_order)
        self.reuse.check(block_length, known_order)

    def prepare(self, context: PolicyContext) -> None:
        """Prepare both; `reuse` is told what it stands on."""
        self.window.prepare(context)
        self.reuse.prepare(replace(context, base=self.window.name))

    def sites(self, run: RunInfo) -> tuple[Site, ...]:
        """What either keeps."""
        both = (*self.window.sites(run), *self.reuse.sites(run))
        return tuple({site.name: site for site in both}.values())

    def start(self, run: RunInfo) -> None:
        """Start both."""
        super().start(run)
        self.window.start(run)
        self.reuse.start(run)
        self.static_rows = self.window.static_rows and self.reuse.static_rows
        self._keeps = bool(self.window.sites(run))

    def confidence_mask(self, step: int, masked: np.ndarray, block: slice) -> np.ndarray | None:
        """What the window watches; a policy within layers watches nothing."""
        return self.window.confidence_mask(step, masked, block)

    def logits_end(self, masked: np.ndarray, block: slice) -> np.ndarray:
        """As the window does."""
        return self.window.logits_end(masked, block)

    def can_commit(self, count: int) -> bool:
        """As the window does."""
        return self.window.can_commit(count)

    def begin_step(self, view: StepView) -> StepPlan:
        """The window's plan; `reuse` is told of the step, and whether the window renews itself."""
        plan = self.window.begin_step(view)
        full = plan.kind == "full"
        inner = self.reuse.begin_step(replace(view, renewal=full and self._keeps))
        return replace(plan, kind=inner.kind) if full else plan

    def plan(self, layer: int, probe: LayerProbe) -> LayerPlan:
        """The layer plan of `reuse`."""
        return self.reuse.plan(layer, probe)

    def end_step(self, view: StepView, confidence: Tensor, committed: Tensor) -> None:
        """Tell both."""
        self.window.end_step(view, confidence, committed)
        self.reuse.end_step(view, confidence, committed)

    def planned(self, view: StepView) -> tuple[str, str, str]:
        """What the window renews, as far as `reuse` does."""
        outer, inner = self.window.planned(view), self.reuse.planned(view)
        prompt, block, rest = (b if a == "full" else a for a, b in zip(outer, inner, strict=True))
        return prompt, block, rest

    def facts(self) -> dict[str, list[float]]:
        """Those of both."""
        return self.window.facts() | self.reuse.facts()

    @classmethod
    def exact(cls) -> Stack:
        """A stack has no settings of its own; its parts have."""
        raise NotImplementedError
