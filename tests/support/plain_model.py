"""A model's layers in plain torch, for loops that keep keys, values and outputs themselves."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import torch
from torch import Tensor

from engine.models.base import ModelAdapter
from tests.support.reference import norm, reference_dense, reference_rotation


class PlainModel:
    """The layers of a dense model, computed for chosen rows of one sequence.

    `rows` [n] are positions, `x` [n, D] the residual stream there.
    """

    def __init__(self, model: ModelAdapter) -> None:
        self._model, self.info = model, model.info
        self.layers = range(model.info.layers)

    def embed(self, ids: Tensor) -> Tensor:
        """The first residual stream."""
        return self._model.embedding.weight[ids]

    def normed(self, layer: int, x: Tensor) -> Tensor:
        """What the projections of a layer read."""
        return norm(x, self._model.block(layer).attn_norm.weight)

    def q(self, layer: int, x: Tensor, rows: Tensor) -> Tensor:
        """Queries [n, H, dh]."""
        return reference_rotation(self._projected(layer, x, 0), rows[:, None])

    def k(self, layer: int, x: Tensor, rows: Tensor) -> Tensor:
        """Keys [n, Hkv, dh]."""
        return reference_rotation(self._projected(layer, x, 1), rows[:, None])

    def v(self, layer: int, x: Tensor) -> Tensor:
        """Values [n, Hkv, dh]."""
        return self._projected(layer, x, 2)

    def value_weight(self, layer: int) -> Tensor:
        """The weight [d_kv, D] of the values."""
        return self._model.block(layer).qkv.weight[-self.info.d_kv :]

    def attention(self, layer: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """The attention branch [n, D] of queries over keys and values."""
        copies = self.info.n_heads // self.info.n_kv_heads
        k, v = (t.repeat_interleave(copies, 1) for t in (k, v))
        scores = torch.einsum("qhd,khd->hqk", q, k) / math.sqrt(self.info.head_dim)
        out = torch.einsum("hqk,khd->qhd", scores.softmax(-1), v).flatten(1)
        return out @ self._model.block(layer).out.weight.T

    def feed_forward(self, layer: int, h: Tensor) -> Tensor:
        """The feed-forward branch [n, D]."""
        block = self._model.block(layer)
        return reference_dense(block.feed_forward, norm(h, block.ff_norm.weight))

    def logits(self, x: Tensor) -> Tensor:
        """Logits [n, V], none for the mask."""
        z = norm(x, self._model.norm.weight) @ self._model.head.weight.T
        z[:, self.info.mask_id] = -torch.inf
        return z

    def empty(self, length: int) -> list[tuple[Tensor, Tensor]]:
        """Keys and values of each layer before the first forward."""
        shape = length, self.info.n_kv_heads, self.info.head_dim
        dtype = self._model.dtype
        return [(torch.zeros(shape, dtype=dtype), torch.zeros(shape, dtype=dtype))
                for _ in self.layers]  # fmt: skip

    def forward(self, ids: Tensor, rows: Tensor, cache: list[tuple[Tensor, Tensor]]) -> Tensor:
        """Logits of `rows`, whose keys and values are written to the cache of all positions."""
        x = self.embed(ids[rows])
        for layer, (k, v) in zip(self.layers, cache, strict=True):
            normed = self.normed(layer, x)
            k[rows], v[rows] = self.k(layer, normed, rows), self.v(layer, normed)
            x = x + self.attention(layer, self.q(layer, normed, rows), k, v)
            x = x + self.feed_forward(layer, x)
        return self.logits(x)

    def whole(self, ids: Tensor) -> Tensor:
        """Logits of every position, without a cache."""
        return self.forward(ids, torch.arange(len(ids)), self.empty(len(ids)))

    def _projected(self, layer: int, x: Tensor, part: int) -> Tensor:
        qkv, info = self._model.block(layer).qkv, self.info
        y = x @ qkv.weight.T + (0 if qkv.bias is None else qkv.bias)
        sizes = [info.n_heads * info.head_dim, info.d_kv, info.d_kv]
        return y.split(sizes, -1)[part].unflatten(-1, (-1, info.head_dim))


@dataclass
class PlainRun:
    """A sequence that a plain loop decodes; `order` is the call that committed each position."""

    prompt: Tensor
    length: int
    mask: int
    calls: int = 0
    order: list[int] = field(init=False)

    def __post_init__(self) -> None:
        self.ids = torch.cat((self.prompt, torch.full((self.length,), self.mask)))
        self.order = [-1] * self.length

    def masks(self, start: int, stop: int) -> list[int]:
        """The masked positions from `start` to `stop`."""
        return [p for p in range(start, stop) if self.ids[p] == self.mask]

    def commit(self, tokens: dict[int, int]) -> None:
        """Count a call that commits `tokens` by position."""
        for position, token in tokens.items():
            self.ids[position] = token
            self.order[position - len(self.prompt)] = self.calls
        self.calls += 1


def ranked(scores: dict[int, float]) -> list[int]:
    """Positions in descending order of score, ties to the lower."""
    return sorted(scores, key=lambda p: (-scores[p], p))


def even_quota(masks: int, steps: int) -> list[int]:
    """LLaDA's tokens of each step of a block."""
    return [masks // steps + (i < masks % steps) for i in range(steps)]


def best(z: Tensor) -> tuple[float, int]:
    """The largest probability of logits [V] and its token."""
    confidence, token = z.softmax(-1).max(-1)
    return float(confidence), int(token)
