"""Unmasker: which candidates a step commits.

Rules that accept a leading run of the confidence order."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from engine.cache.base import CachePolicy, RunInfo, StepView
from engine.config.knobs import check_fields
from engine.config.plan import quota
from engine.core.device import upload
from engine.core.events import GuidedStep
from engine.guider.match import RunGuider
from engine.unmask.schedule import BlockProgress, Schedule


@dataclass(frozen=True)
class Candidates:
    """The proposal at each of `view.needs`, [B, n] each.

    `ids` proposed tokens; `confidence` their probability in the unshaped distribution (what the
    authors of LLaDA rank by; that after `Unmasker.shaping` where there is one); `score` what this
    run ranks by, -inf where a row is padding; `logits` [B, n, V] are those that they come from,
    for unmaskers that are `guided`.
    """

    ids: Tensor
    confidence: Tensor
    score: Tensor
    logits: Tensor | None = None

    def ranking(self) -> Tensor:
        """Indices [B, n] by falling score; ties go to the lower position."""
        return self.score.argsort(dim=1, descending=True, stable=True)

    def leading(self, counts: Tensor) -> Tensor:
        """The `counts` [B] best by score, as a mask [B, n]."""
        places = self.ranking().argsort(dim=1)
        return (places < counts[:, None]) & (self.score > -torch.inf)


@dataclass(frozen=True)
class Commit:
    """What a step commits: a mask over `view.needs` and the ids, [B, n] each.

    `counts` [B] is how many tokens a sequence that the mask holds, of finite scores, where that
    owes nothing to the logits and the positions are left to them.
    """

    mask: Tensor
    ids: Tensor
    counts: np.ndarray | None = None


@dataclass(frozen=True)
class Shaping:
    """What is done to a distribution before anything is drawn from it or measured on it.

    It is tempered, cut to the likeliest tokens that reach `top_p` and then to the `top_k` (0: all)
    likeliest. With `alg_temp` above 0 candidates are ranked by a draw without replacement, in
    proportion to exp(score / alg_temp).
    """

    top_p: float = 1.0
    top_k: int = 0
    alg_temp: float = 0.0


@dataclass
class Unmasker(ABC):
    """A rule for committing tokens; its knobs are its dataclass fields, one instance a run.

    `scheduled` rules spend the `steps` of a spec, `guided` ones ask another model.
    """

    name: ClassVar[str]
    title: ClassVar[str]
    paper: ClassVar[str] = ""
    summary: ClassVar[str] = ""
    scheduled: ClassVar[bool] = False
    guided: ClassVar[bool] = False
    score: str = "confidence"

    def __post_init__(self) -> None:
        check_fields(self, f"{self.name}.")

    def check(self, policy: CachePolicy, block_length: int, eos_suppress: str) -> None:
        """Raise ValueError naming the knob or field that makes such a run impossible."""

    def set_guider(self, guiding: RunGuider | None) -> None:
        """Take the guider of a run, before `start`; None where the rule is not guided."""

    def start(
        self,
        run: RunInfo,
        steps_per_block: int | None,
        begun: Mapping[int, BlockProgress] | None = None,
    ) -> None:
        """Called once before the first step; `begun` as Schedule takes it."""
        steps = steps_per_block
        self.pace = None if steps is None else Schedule(steps, begun or {})

    @property
    def shaping(self) -> Shaping | None:
        """How distributions are shaped before they are measured; None where they are not."""
        return None

    @property
    def known_order(self) -> bool:
        """Whether `order` knows what a step commits, which is something in every step."""
        return False

    def rows(self, masked: np.ndarray, block: slice, logits_end: np.ndarray) -> np.ndarray:
        """Positions [B, T] bool that a step may commit, out of `masked` [B, T]: the block's.

        Before `logits_end` [B] a step gives logits of every mask (CachePolicy.logits_end).
        """
        rows = np.zeros_like(masked)
        rows[:, block] = masked[:, block]
        return rows

    def restrict(self, logits: Tensor) -> None:
        """Rule out what is never proposed, in place on [B, n, V]."""

    def end_of_text_policy(self, asked: str) -> str:
        """The end-of-text rule of a run that asks for one (RunSpec.eos)."""
        return asked

    def report(self, detail: bool) -> GuidedStep | None:
        """What a guider made of the last step; called once a step, outside the clocks."""
        return None

    def held(self) -> int:
        """Bytes that the rule keeps beside the cache of the model."""
        return 0

    def may_skip(self, view: StepView) -> bool:
        """Whether a step may commit nothing."""
        return False

    def shares(self, masked: int, steps: int) -> tuple[int, ...] | None:
        """Tokens committed in each of a block's `steps` steps; None where that is not foreseen."""
        return quota(masked, steps) if self.scheduled else None

    def order(
        self,
        masked: np.ndarray,
        block: slice,
        block_step: int,
        noise: Sequence[torch.Generator],
        eligible: np.ndarray | None = None,
    ) -> tuple[np.ndarray, ...] | None:
        """Positions that a step will commit, in the order of their reveal, one array a sequence.

        None where that depends on the logits. Called once a step, before its forward; `masked`
        [B, T] bool are the open positions of the block, `eligible` those of them that may be
        committed now (None: all), `noise` the generator of each sequence.
        """
        return None

    def commit_owed(self, candidates: Candidates, view: StepView) -> Commit:
        """The best candidates, as many as the schedule owes and may be committed."""
        assert self.pace is not None
        owed = self.pace.owed(view.left, view.block, view.block_step)
        counts = np.minimum(owed, view.real_host.sum(1))
        mask = candidates.leading(upload(counts, candidates.ids.device))
        return Commit(mask, candidates.ids, counts)

    @abstractmethod
    def commit(self, candidates: Candidates, view: StepView) -> Commit:
        """Choose among the masked positions of the block."""


def leading_run(candidates: Candidates, passes: Callable[[Tensor, Tensor], Tensor]) -> Commit:
    """Commit the longest run from the top whose every rank passes, at least one.

    `passes` takes ranks [n] from 1 and doubts 1 - c [B, n] in falling order of score.
    """
    ordered = candidates.score.gather(1, candidates.ranking())
    ranks = torch.arange(1, ordered.shape[1] + 1, device=ordered.device)
    run = passes(ranks, 1 - ordered).long().cumprod(1).sum(1)
    return Commit(candidates.leading(run.clamp_min(1)), candidates.ids)
