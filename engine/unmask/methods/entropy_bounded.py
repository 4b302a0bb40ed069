"""Entropy-bounded: as many tokens as their entropies allow together (EB-Sampler)."""

from __future__ import annotations

from dataclasses import dataclass

from engine.cache.base import StepView
from engine.config.knobs import knob
from engine.unmask.base import Candidates, Commit, SamplingParams, Unmasker


@dataclass
class EntropyBounded(Unmasker):
    """Commits the candidates of least entropy whose sum stays below a bound, at least one.

    The plain sum is bounded, as in JetEngine's rule for SDAR; the paper of the EB-Sampler bounds
    the sum without its largest term.
    """

    name = "entropy_bounded"
    title = "Entropy bound"
    paper = "arXiv 2505.24857"
    summary = "The most certain tokens, as long as the sum of their entropies stays below a bound."

    score: str = "entropy"
    gamma: float = knob(
        0.35, 0.0, 1e6, label="Bound (gamma)",
        help="Most that the entropies may add up to, in nats; 0 commits one token a step.",
    )  # fmt: skip
    top_k: int = knob(
        0, 0, 1000, label="Top k", help="Propose one of this many most probable tokens; 0: any."
    )
    top_p: float = knob(
        1.0, 0.0, 1.0, label="Top p",
        help="Propose one of the most probable tokens, up to this sum; 1: any.",
    )  # fmt: skip

    @property
    def sampling_params(self) -> SamplingParams:
        """Temper each distribution and filter it, by `top_k` first."""
        return SamplingParams(self.top_p, self.top_k, top_k_first=True)

    def commit(self, candidates: Candidates, view: StepView) -> Commit:
        """Commit the longest prefix of rising entropy whose sum is below the bound."""
        entropy = -candidates.score.gather(1, candidates.ranking())
        counts = (entropy.clamp_min(0).cumsum(1) < self.gamma).sum(1)
        return Commit(candidates.top(counts.clamp_min(1)), candidates.ids)
