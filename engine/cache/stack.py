"""Stack: a policy that chooses rows within layers, on one that chooses the rows of a step."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from torch import Tensor

from engine.cache.base import (
    CachePolicy,
    DataRows,
    Kinds,
    LayerPlan,
    LayerProbe,
    ModelInfo,
    PolicyContext,
    RunInfo,
    Speedups,
    StepPlan,
    StepView,
)
from engine.cache.store import Site
from engine.config.blocks import BlockGrid


@dataclass
class Stack(CachePolicy):
    """`base` chooses the rows that enter a step, `reuse` which of them each layer recomputes.

    Its attention is that of `base`; if `base` chooses no rows, the stack is `reuse` alone, and has
    its attention. Raises ValueError if `reuse` cannot be stacked on `base`.
    """

    base: CachePolicy
    reuse: CachePolicy

    def __post_init__(self) -> None:
        if self.base.name not in self.reuse.stackable_on:
            raise ValueError(
                f"cache: {self.reuse.name} cannot be stacked on {self.base.name}: both would "
                f"choose the same rows; it goes on {', '.join(self.reuse.stackable_on) or 'none'}"
            )
        chooses = type(self.base).begin_step is not CachePolicy.begin_step
        self.attention = (self.base if chooses else self.reuse).attention  # type: ignore[misc]

    def begin_step(self, view: StepView) -> StepPlan:
        """The plan of `base`, with the kind that `reuse` makes of it."""
        plan = self._base_plan = self.base.begin_step(view)
        full = plan.kind == "full"
        by_kind = full and self._base_keeps and not view.run.info.block_causal
        refreshed = plan.renewed or by_kind
        inner = replace(view, window_refreshed=refreshed)
        self._reuse_plan = self.reuse.begin_step(inner)
        return replace(plan, kind=self._reuse_plan.kind) if full else plan

    def plan(self, layer: int, probe: LayerProbe) -> LayerPlan:
        """The layer plan of `reuse`."""
        return self.reuse.plan(layer, probe)

    def check(self, block_length: int, known_order: bool) -> None:
        """Check both."""
        self.base.check(block_length, known_order)
        self.reuse.check(block_length, known_order)

    def prepare(self, context: PolicyContext) -> None:
        """Prepare both; `reuse` for drifts measured under `base`."""
        self.base.prepare(context)
        self.reuse.prepare(replace(context, base=self.base.name))

    def sites(self, run: RunInfo) -> tuple[Site, ...]:
        """The sites of both."""
        both = (*self.base.sites(run), *self.reuse.sites(run))
        return tuple({site.name: site for site in both}.values())

    def start(self, run: RunInfo) -> None:
        """Start both."""
        super().start(run)
        self.base.start(run)
        self.reuse.start(run)
        base, reuse = self.base.speedups, self.reuse.speedups
        self.speedups = Speedups(
            static_rows=base.static_rows and reuse.static_rows,
            capture_key=_both_keys if base.capture_key and reuse.capture_key else None,
        )
        self._base_keeps = bool(self.base.sites(run))

    def end_step(self, view: StepView, confidence: Tensor, committed: Tensor) -> None:
        """End the step of both."""
        self.base.end_step(view, confidence, committed)
        self.reuse.end_step(view, confidence, committed)

    @property
    def follows_order(self) -> bool:
        """That of `base`."""
        return self.base.follows_order

    def confidence_mask(
        self, step: int, masked: np.ndarray, undecided: np.ndarray, block: slice
    ) -> np.ndarray | None:
        """That of `base`."""
        return self.base.confidence_mask(step, masked, undecided, block)

    def logits_end(self, masked: np.ndarray, block: slice) -> np.ndarray:
        """That of `base`."""
        return self.base.logits_end(masked, block)

    def rows_to_fill(self, block: slice) -> slice | None:
        """Those of `base`."""
        return self.base.rows_to_fill(block)

    def most_fills(self, grid: BlockGrid) -> int:
        """Those of `base`."""
        return self.base.most_fills(grid)

    @property
    def shares_rows(self) -> bool:
        """That of `base`."""
        return self.base.shares_rows

    def can_commit(self, count: int) -> bool:
        """That of `base`."""
        return self.base.can_commit(count)

    def check_commits(self, count: int, commits: str) -> None:
        """Check `base`."""
        self.base.check_commits(count, commits)

    def planned(self, view: StepView, plan: StepPlan) -> Kinds:
        """The regions that `base` recomputes, as far as `reuse` does."""
        outer = self.base.planned(view, self._base_plan)
        inner = self.reuse.planned(view, self._reuse_plan)
        prompt, block, rest = (b if a == "full" else a for a, b in zip(outer, inner, strict=True))
        return prompt, block, rest

    def data_rows(self) -> DataRows | None:
        """Those of `reuse`, or else of `base`."""
        return self.reuse.data_rows() or self.base.data_rows()

    def rows_by_order(self, info: ModelInfo, block_length: int) -> bool:
        """Whether that of one of them is true."""
        return any(one.rows_by_order(info, block_length) for one in (self.base, self.reuse))

    def with_assumed_share(self, share: float) -> Stack:
        """Both with this share."""
        return Stack(self.base.with_assumed_share(share), self.reuse.with_assumed_share(share))

    def facts(self) -> dict[str, list[float]]:
        """Those of both."""
        return self.base.facts() | self.reuse.facts()


def _both_keys(policy: Stack) -> tuple[object, ...] | None:
    """The capture keys of both policies; None if one of them has none in this step."""
    found = []
    for part in (policy.base, policy.reuse):
        key_of = part.speedups.capture_key
        found.append(None if key_of is None else key_of(part))
    return None if None in found else tuple(found)
