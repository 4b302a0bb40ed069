"""End of text: rules that fill the rest of an answer, and ways to suppress an early end."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from engine.unmask.base import Candidates


def suppress_logits(logits: Tensor, eos_id: int) -> None:
    """Set the logits [B, n, V] of the end-of-text token to -inf (LLaDA's `logits_eos_inf`)."""
    logits.select(-1, eos_id).fill_(-torch.inf)


def suppress_confidence(candidates: Candidates, stop_ids: tuple[int, ...]) -> Candidates:
    """Rank proposed stop tokens last (the intent of LLaDA's `confidence_eos_eot_inf`)."""
    stops = torch.stack([candidates.ids == stop_id for stop_id in stop_ids]).any(0)
    lowest = torch.finfo(candidates.score.dtype).min
    score = torch.where(stops & (candidates.score > -torch.inf), lowest, candidates.score)
    return Candidates(candidates.ids, candidates.confidence, score)


def positions_to_fill(
    rule: str,
    canvas: np.ndarray,
    masked: np.ndarray,
    stop_ids: tuple[int, ...],
    start: int,
    block_stop: int | None = None,
) -> np.ndarray:
    """Masked positions [B, T] that the end-of-text rule fills now.

    Stop tokens are searched from position `start` on. `official` fills nothing if attention is
    full. If it is block-causal, with `block_stop` the end of the current block, it fills all later
    blocks once the block holds no mask and the answer a stop token, as the authors' loops stop
    there. `fill_safe` fills once no position before the first stop token is masked; `fill_eager`
    fills at the first stop token.
    """
    if rule == "official" and block_stop is None:
        return np.zeros_like(masked)
    stops = np.isin(canvas, stop_ids) & ~masked
    stops[:, :start] = False
    if rule == "official":
        stops[:, block_stop:] = False
        ended = stops.any(1) & ~masked[:, :block_stop].any(1)
        return masked & ended[:, None]
    after_stop = np.cumsum(stops, 1) > 0
    fill = after_stop & masked
    if rule == "fill_safe":
        fill &= ~(masked & ~after_stop).any(1, keepdims=True)
    return fill


def text_length(ids: np.ndarray, stop_ids: tuple[int, ...]) -> int:
    """Number of tokens [n] before the first stop token."""
    stops = np.flatnonzero(np.isin(ids, stop_ids))
    return int(stops[0]) if len(stops) else len(ids)
