"""Caches for block-causal attention: finished blocks, exact, and sub-blocks (Fast-dLLM v2).

If a position attends only to blocks up to its own, no later token changes the keys and values of a
block that holds its last token (Block Diffusion, arXiv 2503.09573). A forward over the block's
final tokens, the commit call, gives them once and for all. Those of the block's last denoising step
would not do: the tokens that it committed entered it as masks.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from engine.cache.base import CachePolicy, Kinds, ModelInfo, RunInfo, Speedups, StepPlan, StepView
from engine.cache.store import Site
from engine.config.blocks import BlockGrid
from engine.config.knobs import knob
from engine.core.reasons import Reason
from engine.core.regions import window_kinds

MIN_CAPTURED_BLOCK = 16  # shorter blocks have too few steps of the same rows to repay a capture
REASONS = (
    Reason("this forward computes only rows before the current block; {times}",
           "block reused new_block"),
    Reason("the row belongs to the current block, whose rows change with each of its tokens",
           "block !reused"),
    Reason("the row predicts the first token of the current block, which was still masked",
           "!reused !new_block"),
    Reason("every token of its block is known now, and this forward gives the keys and values that "
           "stay", "!reused"),
)  # fmt: skip


@dataclass
class Frozen(CachePolicy):
    """K and V of finished blocks, from a forward over their final tokens; exact.

    The rows of the current block are computed in every step, and later blocks enter no forward.
    """

    name = "frozen"
    title = "Frozen blocks"
    paper = "arXiv 2503.09573"
    summary = "Keeps keys and values of finished blocks: exact if attention is block-causal."
    attention = ("block_causal",)
    reasons: ClassVar[tuple[Reason, ...]] = (
        *REASONS,
        Reason("the keys and values of finished blocks are final; {times}"),
    )
    speedups = Speedups(may_wait=True, capture_key=lambda policy: policy.repeated_rows)

    fuse: bool = knob(
        False,
        label="Fuse the commit call",
        help="Compute the final keys and values of a block in the first step of the next one: "
        "the same tokens with one forward fewer per block.",
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        self._known = 0  # number of leading rows whose K and V are final
        self._block_fed = -1  # start of the block whose rows entered last

    def begin_step(self, view: StepView) -> StepPlan:
        """Known rows that are not computed yet, and the block unless no logits of it are needed."""
        start, known = view.block.start, self._known
        self._known = start
        if view.fills is not None:
            return StepPlan(view.fills, kind="partial", renewed=True)
        first = view.needs_host[view.real_host] == start if self.run.info.logit_shift else False
        new = known < start or self._block_fed != start
        if known < start and np.all(first):
            return StepPlan(slice(known, start), kind="partial", renewed=True)
        self._block_fed = start
        rows = slice(min(known, start - bool(np.any(first))), view.block.stop)
        return StepPlan(rows, kind="partial" if rows.start else "full", renewed=new)

    def sites(self, run: RunInfo) -> tuple[Site, ...]:
        """K and V."""
        return Site("k"), Site("v")

    def start(self, run: RunInfo) -> None:
        """Nothing is known yet."""
        super().start(run)
        self._known, self._block_fed = 0, -1

    def rows_to_fill(self, block: slice) -> slice | None:
        """The prompt's whole blocks at first, then the finished block: the commit call."""
        return None if self.fuse or self._known >= block.start else slice(self._known, block.start)

    def most_fills(self, grid: BlockGrid) -> int:
        """One before each block that has rows before it."""
        return 0 if self.fuse else len(grid) - (grid.start == 0)

    def rows_by_order(self, info: ModelInfo, block_length: int) -> bool:
        """With shifted logits the row before the block enters while its first token is masked."""
        return bool(info.logit_shift)

    @classmethod
    def exact(cls) -> Frozen:
        """Always exact."""
        return cls()

    def planned(self, view: StepView, plan: StepPlan) -> Kinds:
        """The rows of the plan; what lies before the block is final, the rest is computed later."""
        assert isinstance(plan.rows, slice)
        later = view.masked_host[:, view.block.stop :].any()
        prompt, block, rest = window_kinds(view.regions, plan.rows, "frozen")
        return (
            prompt,
            "reuse" if block == "frozen" else block,
            "reuse" if later and rest == "frozen" else rest,
        )

    @property
    def repeated_rows(self) -> tuple[object, ...] | None:
        """Speedups.capture_key."""
        return () if self.run.block_length >= MIN_CAPTURED_BLOCK else None


@dataclass
class SubBlock(Frozen):
    """`frozen`, and within the current block only the sub-block of the candidates is computed.

    The other rows of the block keep the K and V of the last step that computed it whole. That is
    renewed while the first position of the sub-block is masked (Fast-dLLM v2, section 3.3).
    """

    name = "sub_block"
    title = "Fast-dLLM v2 sub-block cache"
    paper = "arXiv 2509.26328"
    summary = "Keeps finished blocks, and computes only the sub-block that is being decoded."
    reasons = (
        REASONS[0],
        Reason("this step computes the sub-block of the candidates, or the whole block at its "
               "start and while the first position of the sub-block is masked", "block !reused"),
        *REASONS[2:],
        Reason("the row belongs to another sub-block, whose keys and values are those of the last "
               "step that computed it; {times}", "block reused"),
        Reason("the keys and values of finished blocks are final; {times}"),
    )  # fmt: skip
    speedups = Speedups(capture_key=lambda policy: policy.repeated_rows)

    size: int = knob(
        8,
        1,
        1024,
        label="Sub-block",
        help="Positions of a sub-block, a divisor of the block length; from the block length on, "
        "the whole block is computed.",
        search=(4, 8, 16),
    )

    def check(self, block_length: int, known_order: bool) -> None:
        """Raise ValueError naming `sub_block.size` if it does not divide the block."""
        if block_length % min(self.size, block_length):
            raise ValueError(
                f"sub_block.size: {self.size} does not divide the block of {block_length}; choose "
                f"a divisor, or at least {block_length}"
            )

    def begin_step(self, view: StepView) -> StepPlan:
        """The plan of `frozen`, narrowed to the sub-blocks that hold candidates if they may be."""
        plan = super().begin_step(view)
        if plan.renewed:
            return plan
        needs = view.needs_host[view.real_host]
        first = int(needs.min()) // self.size * self.size
        stop = min((int(needs.max()) // self.size + 1) * self.size, view.block.stop)
        first = max(first, view.block.start)
        if view.masked_host[:, first].any() or (first, stop) == (view.block.start, view.block.stop):
            return plan
        return replace(plan, rows=slice(first, stop), kind="partial")

    @property
    def shares_rows(self) -> bool:
        """The rows of a step hold the candidates of all sequences."""
        return True

    def rows_by_order(self, info: ModelInfo, block_length: int) -> bool:
        """The sub-block of the candidates is computed."""
        return True

    @classmethod
    def exact(cls) -> SubBlock:
        """The sub-block is the whole block."""
        return cls(size=1024)
