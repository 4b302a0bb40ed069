"""What the end of a text does to a run: policies that fill, and ways to hold it back."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from engine.unmask.base import Candidates


def suppress_logits(logits: Tensor, eos_id: int) -> None:
    """LLaDA's `logits_eos_inf`: the end of text is never proposed; in place on [B, n, V]."""
    logits.select(-1, eos_id).fill_(-torch.inf)


def suppress_confidence(candidates: Candidates, stop_ids: tuple[int, ...]) -> Candidates:
    """LLaDA's `confidence_eos_eot_inf` as intended: ends are proposed, but ranked last."""
    stops = torch.stack([candidates.ids == one for one in stop_ids]).any(0)
    lowest = torch.finfo(candidates.score.dtype).min
    held = torch.where(stops & (candidates.score > -torch.inf), lowest, candidates.score)
    return Candidates(candidates.ids, candidates.confidence, held)


def ended_rows(
    policy: str, canvas: np.ndarray, masked: np.ndarray, stop_ids: tuple[int, ...], start: int
) -> np.ndarray:
    """Masked positions [B, T] that the end-of-text rule fills now, searching [start, T).

    `official` never; `fill_safe` once nothing before the first end is masked; `fill_eager`
    as soon as there is an end (spec E.2).
    """
    if policy == "official":
        return np.zeros_like(masked)
    stops = np.isin(canvas, stop_ids) & ~masked
    stops[:, :start] = False
    behind = np.cumsum(stops, 1) > 0
    fill = behind & masked
    if policy == "fill_safe":
        fill &= ~(masked & ~behind).any(1, keepdims=True)
    return fill


def text_length(ids: np.ndarray, stop_ids: tuple[int, ...]) -> int:
    """Tokens [n] before the first end of text."""
    stops = np.flatnonzero(np.isin(ids, stop_ids))
    return int(stops[0]) if len(stops) else len(ids)
