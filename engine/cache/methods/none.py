"""No cache: every row is recomputed in every step."""

from __future__ import annotations

from dataclasses import dataclass

from engine.cache.base import CachePolicy


@dataclass
class NoCache(CachePolicy):
    """Plain decoding, the baseline of every comparison."""

    name = "none"
    title = "No cache"
    may_wait = True
    static_rows = True
    summary = "Every position is recomputed in every step."

    def capture_key(self) -> tuple[object, ...]:
        """All steps are alike."""
        return ()

    @classmethod
    def exact(cls) -> NoCache:
        """Always exact."""
        return cls()
