"""Attention: bidirectional, over keys and values as a store keeps them."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor

from engine.models.linear import ONEDNN, multiply, uneven
from engine.models.ops import wide

SCORES = 1 << 19  # attention scores held at a time, so that they stay in a core's cache
LEAST = 1 << 22  # multiplications of a head's product from which it pays to go head by head
TO_TWO = math.log2(math.e)  # powers of two take a third of the time of powers of e


def attention(q: Tensor, k: Tensor, v: Tensor, key_mask: Tensor | None) -> Tensor:
    """Bidirectional attention of q [B, n, H, dh] over k, v [B, Hkv, T, dh] -> [B, n, H * dh].

    `key_mask` [B, T] bool, True where a key may be seen. In bfloat16 on a CPU two products are
    faster than the fused kernel; their scores round as bfloat16 does.
    """
    if _onednn_pays(q, k):
        return _by_head(q, k, v, key_mask)
    if q.dtype == torch.bfloat16 and q.device.type == "cpu":
        return _in_parts(q, k, v, key_mask)
    mask = None if key_mask is None else key_mask[:, None, None]
    out = F.scaled_dot_product_attention(
        q.transpose(1, 2), k, v, attn_mask=mask, enable_gqa=k.shape[1] != q.shape[2]
    )
    return out.transpose(1, 2).flatten(2)


def attention_weighed(
    q: Tensor, k: Tensor, v: Tensor, key_mask: Tensor | None
) -> tuple[Tensor, Tensor]:
    """`attention` written out: its result and its weights, mean over the heads, [B, n, T]."""
    if _onednn_pays(q, k):
        total = q.new_zeros(*q.shape[:2], k.shape[2])
        out = _by_head(q, k, v, key_mask, total)
        return out, total.div_(q.shape[2])
    weights = _weights(_grouped(q, k.shape[1]), k, key_mask)
    by_head = weights.view(len(q), q.shape[2], q.shape[1], -1)
    return _flat(weights @ v, q), wide(by_head).mean(1)


def _onednn_pays(q: Tensor, k: Tensor) -> bool:
    """Whether products by oneDNN, one a head, outweigh the fused kernel, which multiplies by MKL.

    So they do on an AMD processor, of whose speed MKL leaves up to half unused.
    """
    return (
        ONEDNN is not None
        and q.dtype == torch.float32
        and q.device.type == "cpu"
        and q.shape[1] * k.shape[2] * k.shape[3] >= LEAST
    )


def _by_head(
    q: Tensor, k: Tensor, v: Tensor, key_mask: Tensor | None, total: Tensor | None = None
) -> Tensor:
    """`attention`, rows of a head at a time; `total` [B, n, T] takes the sum of its weights."""
    batch, n, heads, width = q.shape
    shared, rows = heads // k.shape[1], -(-n // -(-n * k.shape[2] // SCORES))
    scaled = q * (width**-0.5 * TO_TWO)
    out, k, v = torch.empty_like(q), k.contiguous(), v.contiguous().mT
    for i in range(batch):
        hidden = None if key_mask is None else ~key_mask[i]
        sums = [None] * -(-n // rows) if total is None else total[i].split(rows)
        for head in range(heads):
            keys, values = k[i, head // shared], v[i, head // shared]
            queries, results = scaled[i, :, head].split(rows), out[i, :, head].split(rows)
            for query, result, added in zip(queries, results, sums, strict=True):
                fill = uneven(len(query))
                weights = _powers(multiply(query, keys, fill=fill), hidden)
                whole = weights.sum(-1, keepdim=True)
                torch.div(multiply(weights, values, fill=fill), whole, out=result)
                if added is not None:
                    added.addcdiv_(weights, whole)
    return out.flatten(2)


def _in_parts(q: Tensor, k: Tensor, v: Tensor, key_mask: Tensor | None) -> Tensor:
    """`attention`, some rows of all heads at a time."""
    k, v, queries = k.contiguous(), v.contiguous(), _grouped(q, k.shape[1], TO_TWO)
    hidden = None if key_mask is None else ~key_mask[:, None, None]
    parts = []
    for rows in queries.split(max(16, SCORES // (k.shape[1] * k.shape[2])), 2):
        weights = _powers(rows @ k.mT, hidden)
        parts.append((weights @ v).div_(weights.sum(-1, keepdim=True)))
    return _flat(torch.cat(parts, 2), q)


def _powers(scores: Tensor, hidden: Tensor | None) -> Tensor:
    """2 to the power of `scores` [..., T], in place; 0 where `hidden`.

    A row's largest is taken off first, which no share notices, so that none leaves the format.
    """
    if hidden is not None:
        scores.masked_fill_(hidden, -torch.inf)
    scores -= scores.amax(-1, keepdim=True)
    return scores.exp2_()


def _grouped(q: Tensor, kv_heads: int, factor: float = 1) -> Tensor:
    """Queries [B, n, H, dh], scaled, by the head that they share: [B, Hkv, H / Hkv * n, dh]."""
    scaled = q.transpose(1, 2) * (q.shape[-1] ** -0.5 * factor)
    return scaled.reshape(len(q), kv_heads, -1, q.shape[-1])


def _weights(rows: Tensor, k: Tensor, key_mask: Tensor | None) -> Tensor:
    """Attention weights of scaled query `rows` [B, Hkv, m, dh], [B, Hkv, m, T]."""
    scores = rows @ k.mT
    if key_mask is not None:
        scores = scores.masked_fill(~key_mask[:, None, None], -torch.inf)
    return scores.softmax(-1)


def _flat(out: Tensor, q: Tensor) -> Tensor:
    """Results [B, Hkv, H / Hkv * n, dh] of `_grouped` queries as [B, n, H * dh]."""
    batch, n, heads, width = q.shape
    return out.view(batch, heads, n, width).transpose(1, 2).flatten(2)
