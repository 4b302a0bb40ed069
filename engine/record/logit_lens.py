"""Logit lens: what the hidden state after each layer would predict (nostalgebraist, 2020).

The hidden state goes through the final norm and the head of the model, as if no layer followed.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from engine.core.events import NOT_COMPUTED, PROBABILITY_SCALE, LogitLens
from engine.core.rows import ALL, Rows
from engine.models.base import ModelAdapter
from engine.models.ops import upcast
from engine.unmask.proposals import exclude_non_text

MAX_LOGITS = 1 << 24  # logits held at a time: 64 MB in float32, 132 rows of 126,464 tokens


class HiddenStates:
    """The hidden states of some rows after each layer of a forward, of sequence 0.

    An instance observes one forward (`ForwardPass.observe`) of a canvas of `length` rows. It keeps
    copies [n, D] of the rows `wanted` [n], and which of them the forward had [n] bool.
    """

    def __init__(self, wanted: Tensor, length: int) -> None:
        self._wanted, self._length = wanted, length
        self.layers: list[tuple[Tensor, Tensor]] = []

    def __call__(self, layer: int, h: Tensor, rows: Rows) -> None:
        """Copy the wanted rows of the residual stream `h` [B, n, D] at `rows` after a layer."""
        assert layer == len(self.layers), "each layer is observed once, in order"
        places = torch.full((self._length,), -1, dtype=torch.long, device=h.device)
        at = rows[0] if isinstance(rows, Tensor) else slice(None) if rows is ALL else rows
        places[at] = torch.arange(h.shape[1], device=h.device)
        found = places[self._wanted]
        self.layers.append((h[0].index_select(0, found.clamp_min(0)), found >= 0))


def read_lens(
    adapter: ModelAdapter, own: HiddenStates, exact: HiddenStates, positions: np.ndarray
) -> LogitLens:
    """The lens of a step's own pass and of the exact one, whose rows predict `positions` [N].

    At most MAX_LOGITS logits are in memory at a time.
    """
    h, known = exact.layers[-1]
    final = _read(adapter, h, known, torch.zeros_like(known))[0]
    passes = [[_read(adapter, *layer, final) for layer in one.layers] for one in (own, exact)]
    ids, probs, token_probs = (
        torch.stack([torch.stack([layer[i] for layer in one]) for one in passes]).cpu().numpy()
        for i in range(3)
    )
    return LogitLens(positions, ids, probs, token_probs)


def rows_at_a_time(vocab: int) -> int:
    """How many rows of logits over so many tokens are computed at a time."""
    return max(MAX_LOGITS // vocab, 1)


def _read(adapter: ModelAdapter, h: Tensor, known: Tensor, token: Tensor) -> tuple[Tensor, ...]:
    """Best ids int32, their codes and those of `token` uint8, [n] each, of hidden rows [n, D]."""
    size = rows_at_a_time(adapter.info.vocab_size)
    parts = []
    for rows, tokens in zip(h.split(size), token.split(size), strict=True):
        z = upcast(adapter.logits(rows[None])[0])
        exclude_non_text(z, adapter.info)
        top, ids = z.max(-1)
        total = z.logsumexp(-1)
        given = z.gather(1, tokens[:, None].long())[:, 0]
        parts.append((ids, _codes(top - total), _codes(given - total)))
    ids, *codes = (torch.cat(part) for part in zip(*parts, strict=True))
    shown = [torch.where(known, code, NOT_COMPUTED) for code in codes]
    return torch.where(known, ids, 0).int(), *shown


def _codes(log_probability: Tensor) -> Tensor:
    """The codes uint8 of probabilities, given their logarithms."""
    return (log_probability.exp().clamp_max(1) * PROBABILITY_SCALE).round().to(torch.uint8)
