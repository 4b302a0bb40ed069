"""Samplers and caches as released, and orders from recorded random numbers."""

from dataclasses import asdict, dataclass, replace
from itertools import pairwise

import numpy as np
import torch
from torch import Tensor

from engine.cache.base import CachePolicy, LayerPlan, LayerProbe, StepPlan, StepView
from engine.cache.methods.d2_cache import D2Cache
from engine.cache.methods.dkv_cache import DkvCache
from engine.cache.methods.dllm_cache import DllmCache
from engine.cache.methods.fast_dllm import DualCache, PrefixCache
from engine.cache.methods.spa_cache import SpaCache
from engine.core.rows import NONE, is_empty, to_mask
from engine.unmask.base import Candidates, Commit, SamplingParams, Unmasker
from engine.unmask.methods.dream import Dream
from engine.unmask.methods.factor import Factor
from engine.unmask.methods.quota import Quota
from engine.unmask.methods.threshold import Threshold


class RecordedOrder(Quota):
    """A random order from recorded random numbers [blocks, T]."""

    def __init__(self, numbers: np.ndarray) -> None:
        super().__init__(score="random")
        self._recorded = numbers

    def draw_order(self, block, noise) -> np.ndarray:
        size, length = block.stop - block.start, self._recorded.shape[1]
        index = len(self._recorded) - (length - block.start) // size
        return self._recorded[index, block][None]


@dataclass
class StaleD2Cache(D2Cache):
    """The released d2Cache, for a batch of one.

    It updates confidences in a copy only, so that those of the first step stay. It rounds the
    range of candidates up by the number of masks in the last step's block, and puts the masks of
    that block first. With shifted logits, the prompt's last row is fed only if it predicts a
    candidate.
    """

    def __post_init__(self) -> None:
        super().__post_init__()
        self._window, self.inflate_w = self.inflate_w, 0  # gaps are filled after the prompt's row

    def end_step(self, view, confidence, committed) -> None:
        super().end_step(view, confidence, committed)
        self._block, self._found = view.block, int(view.masked_host[:, view.block].sum())

    def update_confidence(self, view, confidence) -> None:
        if view.step == 0:
            super().update_confidence(view, confidence)

    def _candidates(self, masked: np.ndarray, undecided: np.ndarray, block: slice) -> np.ndarray:
        found, first = super()._candidates(masked, undecided, block), self.run.prompt_length
        self._proposes_first = found[0, first]
        if self.run.info.logit_shift:
            found[0, first] = False  # so that the roll-out may choose its row, which then counts
        return found

    def choose(self, masked: np.ndarray, undecided: np.ndarray, block: slice) -> np.ndarray:
        rows = super().choose(masked, undecided, self._block)
        if self.run.info.logit_shift:
            rows[0, self.run.prompt_length - 1] = self._proposes_first
        for left, right in pairwise(np.flatnonzero(rows[0])):
            rows[0, left:right] |= right - left <= self._window
        return rows

    def _within_reach(self, free: np.ndarray) -> np.ndarray:
        start, last = self.run.prompt_length, free[: self.current_k][-1:]
        if len(free) < self.current_k:
            return free
        return free[free < start + ((last - start) // self._found + 1) * self._found]


class EmptyStepsDkv(DkvCache):
    """dKV-Cache that may feed no row, in a step between reloads that has nothing to compute.

    The base class feeds row 0 in such a step, which lies in the prompt.
    """

    def begin_step(self, view: StepView) -> StepPlan:
        plan = super().begin_step(view)
        if plan.kind == "partial" and to_mask(plan.rows, 1, view.run.length)[0, 0]:
            return replace(plan, rows=NONE)
        return plan


class RoundedDownDllm(DllmCache):
    """dLLM-Cache that chooses int(G rho) rows, which may be none; V is stored for all G rows."""

    def plan(self, layer: int, probe: LayerProbe) -> LayerPlan:
        plan = super().plan(layer, probe)
        empty = {name: NONE for name in ("k", "attn", "ffn") if is_empty(getattr(plan, name))}
        return replace(plan, **empty)

    def _select(self, probe: LayerProbe) -> Tensor:
        rows = super()._select(probe)
        length = self._answer.stop - self._answer.start
        return rows if int(length * self.recompute_ratio) else rows[:, :0]


class GivenBudget(SpaCache):
    """SPA-Cache with recorded ratios, one a layer, instead of a curve.

    A layer may choose no row; the proxies, K and V are stored for all rows as always.
    """

    recorded: tuple[float, ...] = ()

    def plan(self, layer: int, probe: LayerProbe) -> LayerPlan:
        plan, length = super().plan(layer, probe), self._answer.stop - self._answer.start
        if isinstance(plan.attn, Tensor) and not int(length * self.recorded[layer]):
            return replace(plan, attn=NONE, ffn=NONE)
        return plan

    def ratios(self, info) -> tuple[float, ...]:
        return self.recorded


@dataclass(frozen=True, kw_only=True)
class TopkCandidates(Candidates):
    """Candidates whose ties torch.topk decides, among `size` scores that are -inf elsewhere.

    `places` [1, n] are those of the candidates.
    """

    places: Tensor
    size: int

    def top(self, counts: Tensor) -> Tensor:
        score, places = self.score.cpu(), self.places.cpu()  # a GPU decides ties otherwise
        real = score > -torch.inf
        scores = score.new_full((self.size,), -torch.inf)
        scores[places[real]] = score[real]
        chosen = torch.zeros(self.size, dtype=torch.bool)
        chosen[scores.topk(min(int(counts[0]), self.size)).indices] = True
        return (chosen[places] & real).to(self.score.device)


class TopkOrder(Unmasker):
    """A released rule, for a batch of one: torch.topk decides ties over the rows of the call.

    They are those that a `cache` of Fast-dLLM feeds. With top_p, all tokens that reach it alone
    have a confidence of 1.
    """

    cache = "none"

    def commit(self, candidates: Candidates, view: StepView) -> Commit:
        return super().commit(self.ranked(candidates, view), view)

    def ranked(self, candidates: Candidates, view: StepView) -> Candidates:
        start = 0 if self.cache == "none" else view.block.start
        stop = view.block.stop if self.cache == "dual" else view.run.length
        own = candidates.ids, candidates.confidence, candidates.score
        return TopkCandidates(*own, places=view.needs - start, size=stop - start)


class ReleasedDream(TopkOrder, Dream):
    pass


class ForcedFirst(TopkOrder):
    """Fast-dLLM's sampler for Dream: the first step of a block commits only its leftmost token.

    Dream's schedule applies from the second step on.
    """

    def commit(self, candidates: Candidates, view: StepView) -> Commit:
        if view.block_step > 0:
            return super().commit(candidates, view)
        return Commit(view.real & (view.needs == view.block.start), candidates.ids)


class FilteredThreshold(Threshold):
    """Dream's samplers compare a threshold with probabilities of the filtered distribution."""

    filters = SamplingParams()

    @property
    def sampling_params(self) -> SamplingParams:
        return self.filters


class ForcedThreshold(ForcedFirst, FilteredThreshold):
    pass


class ForcedDream(ForcedFirst, Dream):
    pass


class EarlierMasks(Unmasker):
    """SPA-Cache's sampler: masks that earlier blocks kept compete with those of the block."""

    def candidate_positions(
        self, masked: np.ndarray, block: slice, logits_end: np.ndarray
    ) -> np.ndarray:
        positions = np.zeros_like(masked)
        positions[:, : block.stop] = masked[:, : block.stop]
        return positions


class EarlierMasksThreshold(EarlierMasks, Threshold):
    pass


class LastRankFactor(EarlierMasks, Factor):
    """SPA-Cache's factor rule, for a batch of one: all candidates if only the last fails.

    Rank r passes with a confidence of at least 1 - factor / (r + 1), the first always.
    """

    def commit(self, candidates: Candidates, view: StepView) -> Commit:
        ordered = candidates.score.gather(1, candidates.ranking())[0]
        passes = ordered >= 1 - self.factor / torch.arange(2, len(ordered) + 2)
        passes[0] = True
        count = int(passes.long().cumprod(0).sum())
        count += count == len(ordered) - 1
        return Commit(candidates.top(torch.tensor([count])), candidates.ids)


class NeverAllFactor(Factor):
    """d2Cache's factor rule, for a batch of one: without the last candidate if all pass.

    The best one is always taken.
    """

    def commit(self, candidates: Candidates, view: StepView) -> Commit:
        found = super().commit(candidates, view)
        count = min(int(found.mask.sum()), max(int(view.real.sum()) - 1, 1))
        return Commit(candidates.top(torch.tensor([count])), candidates.ids)


class OwnRowsPrefix(PrefixCache):
    """A window without the row before the block, although it predicts the first token."""

    def window(self, view: StepView) -> slice:
        return slice(view.block.start, view.run.length)


class OwnRowsDual(DualCache):
    """A dual-cache window without the row before the block; see OwnRowsPrefix."""

    def window(self, view: StepView) -> slice:
        return slice(view.block.start, view.block.stop)


def forced(unmasker: Unmasker, cache: str) -> TopkOrder:
    """The unmasker as Fast-dLLM's sampler for Dream runs it with a cache."""
    kinds: dict[type, type[TopkOrder]] = {Threshold: ForcedThreshold, Dream: ForcedDream}
    found = kinds[type(unmasker)](**asdict(unmasker))
    found.cache = cache
    return found


def with_earlier_masks(unmasker: Unmasker) -> Unmasker:
    """The unmasker as SPA-Cache's sampler runs it."""
    kinds = {Threshold: EarlierMasksThreshold, Factor: LastRankFactor}
    kind = kinds.get(type(unmasker))
    return unmasker if kind is None else kind(**asdict(unmasker))


def unshifted(policy: CachePolicy) -> CachePolicy:
    """The policy as Fast-dLLM's sampler for Dream runs it."""
    return {"prefix": OwnRowsPrefix, "dual": OwnRowsDual}[policy.name]()


def released(policy: CachePolicy, settings: dict) -> CachePolicy:
    """The policy as its authors released it, with the settings of a recording."""
    if isinstance(policy, D2Cache):
        return StaleD2Cache(**asdict(policy))
    if isinstance(policy, DllmCache):
        return RoundedDownDllm(**asdict(policy))
    if isinstance(policy, DkvCache):
        return EmptyStepsDkv(**asdict(policy))
    if isinstance(policy, SpaCache):
        policy = GivenBudget(**asdict(policy))
        policy.recorded = tuple(settings["update_ratio"])
    return policy
