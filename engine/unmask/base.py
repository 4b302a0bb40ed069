"""Unmasker: the base class of the rules that choose which candidate tokens a step commits.

A new unmasker is one Python file in `engine/unmask/methods/` with a dataclass that sets `name` and
`title` and implements `commit`. Every other hook has a default.
"""

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
from engine.config.spec import RunSpec
from engine.core.device import upload
from engine.core.events import GuidedStep
from engine.guider.run_guider import RunGuider
from engine.unmask.schedule import BlockProgress, Schedule


@dataclass(frozen=True)
class Candidates:
    """The proposed tokens `ids` at the positions `view.needs`, [B, n] each.

    `confidence` is their probability in the model's distribution (LLaDA's confidence), or in the
    filtered one if the unmasker has `sampling_params`. `score` is what the run ranks by, -inf for
    padding rows. `logits` [B, n, V] are given to `guided` unmaskers only.
    """

    ids: Tensor
    confidence: Tensor
    score: Tensor
    logits: Tensor | None = None

    def ranking(self) -> Tensor:
        """Indices [B, n] in descending order of score; ties go to the lower position."""
        return self.score.argsort(dim=1, descending=True, stable=True)

    def top(self, counts: Tensor) -> Tensor:
        """Mask [B, n] of the `counts` [B] candidates with the highest scores."""
        ranking = self.ranking()
        first = torch.arange(ranking.shape[1], device=ranking.device) < counts[:, None]
        return torch.empty_like(first).scatter_(1, ranking, first) & (self.score > -torch.inf)


@dataclass(frozen=True)
class Commit:
    """The tokens that a step commits: a mask over `view.needs` and the ids, [B, n] each.

    `counts` [B] are the numbers of committed tokens, if they do not depend on (finite) logits.
    `confidence` [B, n] is the probability of `ids`; None: that of the candidates.
    """

    mask: Tensor
    ids: Tensor
    counts: np.ndarray | None = None
    confidence: Tensor | None = None


@dataclass(frozen=True)
class SamplingParams:
    """Changes to each distribution before tokens are drawn from it or measured on it.

    The distribution is tempered, restricted to the most probable tokens that reach `top_p`, then
    to the `top_k` most probable ones (0: all), or the other way round with `top_k_first`. If
    `alg_temp` is above 0, candidates are ranked by a draw without replacement, in proportion to
    exp(score / alg_temp).
    """

    top_p: float = 1.0
    top_k: int = 0
    alg_temp: float = 0.0
    top_k_first: bool = False


@dataclass
class DecodingRule:
    """What the `unmasker` of a spec names; its knobs are its dataclass fields.

    `scheduled` rules use the `steps` of a spec, `guided` rules need a second model.
    """

    name: ClassVar[str]
    title: ClassVar[str]
    paper: ClassVar[str] = ""
    summary: ClassVar[str] = ""
    scheduled: ClassVar[bool] = False
    guided: ClassVar[bool] = False

    def __post_init__(self) -> None:
        check_fields(self, f"{self.name}.")

    def check(self, policy: CachePolicy, spec: RunSpec) -> None:
        """Raise ValueError naming the knob or field that makes a run impossible."""

    def planned_counts(self, masked: int, steps: int) -> tuple[int, ...] | None:
        """Tokens committed in each of a block's `steps` steps; None if not known in advance."""
        return quota(masked, steps) if self.scheduled else None

    @property
    def confidence_decides(self) -> bool:
        """Whether a model's confidence decides how many tokens a step commits, and so the steps."""
        return not self.scheduled

    @property
    def has_planned_order(self) -> bool:
        """Whether `planned_order` gives at least one position in every step."""
        return False

    def end_of_text_rule(self, eos: str) -> str:
        """The end-of-text rule by which the run ends, given that of its spec (RunSpec.eos)."""
        return eos


@dataclass
class Unmasker(DecodingRule, ABC):
    """A rule that chooses which tokens a denoising step commits.

    Each run has its own instance. `score` is one of confidence, margin, entropy and random.
    """

    score: str = "confidence"

    @property
    def ranks_by_score(self) -> bool:
        """Whether candidates of a higher score are committed first."""
        return True

    def check(self, policy: CachePolicy, spec: RunSpec) -> None:
        """Raise ValueError if ends of text are to be ranked last by a rule that does not rank."""
        if spec.eos_suppress == "confidence" and not self.ranks_by_score:
            raise ValueError(
                f"eos_suppress: confidence ranks ends last, and {self.name} does not rank here; "
                "choose none or logits"
            )

    @abstractmethod
    def commit(self, candidates: Candidates, view: StepView) -> Commit:
        """Choose the tokens to commit, at least one of each sequence that has candidates."""

    def commit_scheduled(self, candidates: Candidates, view: StepView) -> Commit:
        """Commit the candidates with the highest scores, as many as the schedule requires."""
        assert self.block_schedule is not None, "an unmasker with a schedule sets scheduled = True"
        due = self.block_schedule.tokens_due(view.left, view.block, view.block_step)
        counts = np.minimum(due, view.real_host.sum(1))
        mask = candidates.top(upload(counts, candidates.ids.device))
        return Commit(mask, candidates.ids, counts)

    # State of a run.

    def set_guider(self, run_guider: RunGuider | None) -> None:
        """Store the run's guider, before `start`; None if the rule is not guided."""

    def start(
        self,
        run: RunInfo,
        steps_per_block: int | None,
        progress: Mapping[int, BlockProgress] | None = None,
    ) -> None:
        """Prepare a run before its first step.

        `steps_per_block` is None if the rule is not scheduled; `progress` is that of Schedule.
        """
        self.block_schedule = Schedule(steps_per_block, progress or {}) if steps_per_block else None

    # Optional: what is proposed and where.

    @property
    def sampling_params(self) -> SamplingParams | None:
        """Changes to each distribution before it is measured; None for no change."""
        return None

    def candidate_positions(
        self, masked: np.ndarray, block: slice, logits_end: np.ndarray
    ) -> np.ndarray:
        """Positions [B, T] bool that a step may commit; by default the block's masked positions.

        `masked` [B, T] bool are all masked positions. The step computes logits of those before
        `logits_end` [B] (CachePolicy.logits_end).
        """
        positions = np.zeros_like(masked)
        positions[:, block] = masked[:, block]
        return positions

    def logit_offsets(self, view: StepView) -> Mapping[int, float]:
        """Numbers added to the logits of single tokens in this step, by id, before all else."""
        return {}

    def restrict_logits(self, logits: Tensor) -> None:
        """Set logits [B, n, V] of tokens that must not be proposed to -inf, in place."""

    # Optional: what is known before the forward.

    def planned_order(
        self,
        masked: np.ndarray,
        block: slice,
        block_step: int,
        noise: Sequence[torch.Generator],
        eligible: np.ndarray | None = None,
    ) -> tuple[np.ndarray, ...] | None:
        """Positions that the step commits, in order, one array a sequence; None if unknown.

        Called once a step, before its forward. `masked` [B, T] bool are the block's masked
        positions, `eligible` those that this step may commit (None: all), `noise` the generator
        of each sequence.
        """
        return None

    # Optional: what follows a commit.

    def may_commit_nothing(self, view: StepView) -> bool:
        """Whether a step is allowed to commit no token."""
        return False

    def guider_report(self, detail: bool) -> GuidedStep | None:
        """The guider's results of the last step; called once a step, outside the timed parts."""
        return None

    def cached_bytes(self) -> int:
        """Bytes that the rule caches, the model's cache excluded."""
        return 0


def commit_passing_prefix(
    candidates: Candidates, passes: Callable[[Tensor, Tensor], Tensor]
) -> Commit:
    """Commit the longest prefix of the ranking in which every candidate passes, at least one.

    `passes` maps ranks [n] (from 1) and 1 - score [B, n], both in ranking order, to flags [B, n].
    """
    ordered = candidates.score.gather(1, candidates.ranking())
    ranks = torch.arange(1, ordered.shape[1] + 1, device=ordered.device)
    counts = passes(ranks, 1 - ordered).long().cumprod(1).sum(1)
    return Commit(candidates.top(counts.clamp_min(1)), candidates.ids)
