"""End of text: rules that fill the rest of an answer, and ways to suppress an early end."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from engine.unmask.base import Candidates


def suppress_logits(logits: Tensor, ids: Iterable[int]) -> None:
    """Set the logits [B, n, V] of end-of-text tokens to -inf (LLaDA's `logits_eos_inf`)."""
    for token in ids:
        logits.select(-1, token).fill_(-torch.inf)


def suppress_confidence(candidates: Candidates, stop_ids: tuple[int, ...]) -> Candidates:
    """Rank proposed stop tokens last (the intent of LLaDA's `confidence_eos_eot_inf`)."""
    if not stop_ids:
        return candidates
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
    block_stop: int | np.ndarray | None = None,
) -> np.ndarray:
    """Masked positions [B, T] that the end-of-text rule fills now.

    Stop tokens are searched from position `start` on. `official` fills nothing if attention is
    full. If it is block-causal, with `block_stop` the end of the current block (of each sequence,
    [B, 1], if they differ), it fills all later blocks once the block holds no mask and the answer
    a stop token, as the authors' loops stop there. `fill_safe` fills once no position before the
    first stop token is masked; `fill_eager` fills at the first stop token.
    """
    if rule == "official" and block_stop is None:
        return np.zeros_like(masked)
    stops = np.isin(canvas, stop_ids) & ~masked
    stops[:, :start] = False
    if rule == "official" and block_stop is not None:
        reached = np.arange(canvas.shape[1])[None] < block_stop
        ended = (stops & reached).any(1) & ~(masked & reached).any(1)
        return masked & ended[:, None]
    after_stop = np.cumsum(stops, 1) > 0
    fill = after_stop & masked
    if rule == "fill_safe":
        fill &= ~(masked & ~after_stop).any(1, keepdims=True)
    return fill


def decoded_stops(masked: np.ndarray, size: int, origin: int | np.ndarray) -> np.ndarray:
    """Where the blocks that hold no position of `masked` [B, T] end, [B, 1].

    Blocks have `size` positions and lie on multiples of it from `origin` on, which may be negative
    and is [B] if the sequences differ.
    """
    first = np.where(masked.any(1), masked.argmax(1), masked.shape[1])
    stops: np.ndarray = first - (first - origin) % size
    return stops[:, None]


def find_stops(ids: np.ndarray, masked: np.ndarray, stops: Sequence[Sequence[int]]) -> np.ndarray:
    """The first place [B] in `ids` [B, n] where one of the series `stops` stands; n without one.

    A position that is `masked` [B, n] belongs to no series.
    """
    batch, length = ids.shape
    here = np.zeros((batch, length), bool)
    for stop in stops:
        starts = length - len(stop) + 1
        if starts < 1:
            continue
        matches = np.ones((batch, starts), bool)
        for offset, token in enumerate(stop):
            part = slice(offset, offset + starts)
            matches &= (ids[:, part] == token) & ~masked[:, part]
        here[:, :starts] |= matches
    first: np.ndarray = np.where(here.any(1), here.argmax(1), length)
    return first


class Answer(NamedTuple):
    """An answer before the end of its text: its length in positions, and its tokens.

    Positions that are still masked have no token, so there may be fewer `ids` than `positions`.
    """

    positions: int
    ids: tuple[int, ...]


def answer_before_end(ids: np.ndarray, masked: np.ndarray, stop_ids: tuple[int, ...]) -> Answer:
    """The answer that stands in `ids` [n], of which some are `masked` [n] bool, before a stop."""
    length = text_length(ids, stop_ids)
    return Answer(length, tuple(ids[:length][~masked[:length]].tolist()))


def text_length(ids: np.ndarray, stop_ids: tuple[int, ...]) -> int:
    """Number of tokens [n] before the first stop token."""
    stops = np.flatnonzero(np.isin(ids, stop_ids))
    return int(stops[0]) if len(stops) else len(ids)
