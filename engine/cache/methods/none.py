"""No cache: every row is recomputed in every step."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from engine.cache.base import CachePolicy, Speedups, StepPlan
from engine.cache.forward import forward
from engine.cache.store import ActivationStore
from engine.core.reasons import Reason
from engine.core.rows import Rows
from engine.models.base import ModelAdapter


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


def exact_logits(adapter: ModelAdapter, canvas: Tensor, rows: Rows) -> Tensor:
    """Logits [B, n, V] of the hidden rows `rows` of one forward pass over a canvas [B, T]."""
    batch, length = canvas.shape
    store = ActivationStore(adapter.info, (), batch, length, adapter.dtype, adapter.device)
    return forward(adapter, store, NoCache(), StepPlan(), canvas, None, rows, unread="full")
