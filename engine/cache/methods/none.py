"""No cache: every row is recomputed in every step."""

from __future__ import annotations

from dataclasses import dataclass

from engine.cache.base import CachePolicy, Speedups
from engine.core.reasons import Reason


@dataclass
class NoCache(CachePolicy):
    """Plain decoding, the baseline of every comparison."""

    name = "none"
    title = "No cache"
    summary = "Every position is recomputed in every step."
    attention = ("full", "block_causal")
    reasons = (Reason("without a cache every row is recomputed in every step"),)
    speedups = Speedups(static_rows=True, may_wait=True, capture_key=lambda policy: ())

    @classmethod
    def exact(cls) -> NoCache:
        """Always exact."""
        return cls()
