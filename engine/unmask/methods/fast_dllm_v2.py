"""Fast-dLLM v2: sub-blocks, a threshold, and each block's first token alone (arXiv 2509.26328)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import torch

from engine.cache.base import CachePolicy, RunInfo, StepView
from engine.config.knobs import knob
from engine.config.spec import RunSpec
from engine.unmask.base import Candidates, Commit, Unmasker
from engine.unmask.schedule import BlockProgress


@dataclass
class FastDllmV2(Unmasker):
    """Decodes a block in sub-blocks from left to right, each by a strict threshold.

    With block-causal attention and shifted logits, the first token of a block is committed alone
    before the others, whatever its confidence: its logits are those of the last row of the block
    before, from the forward that computes that block's final keys and values.
    """

    name = "fast_dllm_v2"
    title = "Fast-dLLM v2"
    paper = "arXiv 2509.26328"
    summary = (
        "Sub-block by sub-block, all tokens above a probability threshold, and always the most "
        "probable one."
    )

    threshold: float = knob(
        0.9, 0.0, 2.0, label="Threshold",
        help="Probability that a token has to exceed; from 1 on, one token a step.",
    )  # fmt: skip
    sub_block: int = knob(
        8,
        1,
        1024,
        label="Sub-block",
        help="Positions of a sub-block; those of a block are decoded from left to right.",
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        self._first_alone = False

    def check(self, policy: CachePolicy, spec: RunSpec) -> None:
        """Raise ValueError naming a cache's knob that leaves no row for a token of the sub-block.

        `fuse` leaves none for the first token of a block.
        """
        super().check(policy, spec)
        commits = "fast_dllm_v2 commits a token of the first open sub-block"
        policy.check_commits(spec.block_length, commits)
        window = spec.cache.partition("+")[0]
        if spec.knobs.get(f"{window}.fuse"):
            raise ValueError(
                f"{window}.fuse: with fast_dllm_v2 the first token of a block comes from the "
                "commit call, which must come before the block; set it to false"
            )

    def start(
        self,
        run: RunInfo,
        steps_per_block: int | None,
        progress: Mapping[int, BlockProgress] | None = None,
    ) -> None:
        """Whether first tokens come alone follows from the model."""
        super().start(run, steps_per_block, progress)
        self._first_alone = run.info.block_causal and run.info.logit_shift > 0

    def candidate_positions(
        self, masked: np.ndarray, block: slice, logits_end: np.ndarray
    ) -> np.ndarray:
        """The block's first position if it comes alone and is masked, else the first sub-block."""
        positions = super().candidate_positions(masked, block, logits_end)
        inside = positions[:, block]  # a view
        places = np.arange(inside.shape[1])
        current = inside.argmax(1)[:, None] // self.sub_block
        alone = inside[:, :1] & self._first_alone
        inside &= np.where(alone, places == 0, places // self.sub_block == current)
        return positions

    def commit(self, candidates: Candidates, view: StepView) -> Commit:
        """Commit candidates above the threshold, and the first in rank."""
        best = candidates.top(torch.ones_like(view.real[:, 0], dtype=torch.long))
        return Commit(best | (candidates.score > self.threshold), candidates.ids)
