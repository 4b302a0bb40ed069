"""Attention over keys and values, in both directions or under a mask of each row."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType

import torch
import torch.nn.functional as F
from torch import Tensor

from engine.models.kernels.choice import TORCH
from engine.models.kernels.linear import needs_padding, onednn_linear, supports_onednn
from engine.models.ops import upcast

MAX_SCORE_BYTES = 2 << 20  # attention scores of a chunk, for the cache of one CPU core
MANY_ROWS = 128  # from which the longest query and key are found in less time than the maxima
MAX_EXPONENT = 96  # 2 ** this times the keys of any canvas and their values is finite
LOG2_E = math.log2(math.e)  # exp2 takes a third of the time of exp, so scores are scaled by this


def attention(
    q: Tensor, k: Tensor, v: Tensor, key_mask: Tensor | None, routine: str = TORCH
) -> Tensor:
    """Attention of q [B, n, H, dh] over k, v [B, Hkv, T, dh] -> [B, n, H * dh].

    `key_mask` bool is True for keys that are attended to: [B, T] for all rows alike, or
    [B or 1, n, T]. `routine` is one of the operation `attention` (engine.models.kernels): torch's
    fused kernel, oneDNN products of one head at a time, or two products of all heads. In bfloat16
    the scores of the last two are bfloat16.
    """
    if routine in OWN_ROUTINES and q.dtype == torch.bfloat16 and q.shape[1] >= MANY_ROWS:
        out: Tensor = BOUNDED_ATTENTION(q, k, v, key_mask, routine)
        return out
    if routine in OWN_ROUTINES:
        return OWN_ROUTINES[routine](q, k, v, key_mask)
    mask = None if key_mask is None else _by_row(key_mask)[:, None]
    out = F.scaled_dot_product_attention(
        q.transpose(1, 2), k, v, attn_mask=mask, enable_gqa=k.shape[1] != q.shape[2]
    )
    return out.transpose(1, 2).flatten(2)


def attention_with_weights(
    q: Tensor, k: Tensor, v: Tensor, key_mask: Tensor | None, routine: str = TORCH
) -> tuple[Tensor, Tensor]:
    """`attention` and its weights, mean over the heads, [B, n, T].

    The fused kernel gives no weights: all routines but `by_head` are two products of all heads.
    """
    if routine == "by_head":
        total = upcast(q.new_zeros(*q.shape[:2], k.shape[2]))
        out = _onednn_attention(q, k, v, key_mask, total)
        return out, total.div_(q.shape[2])
    weights = _softmax_weights(_grouped(q, k.shape[1]), k, key_mask)
    by_head = weights.view(len(q), q.shape[2], q.shape[1], -1)
    return _ungrouped(weights @ v, q), upcast(by_head).mean(1)


def attention_routines(dtype: torch.dtype, device: torch.device) -> tuple[str, ...]:
    """The routines that compute attention in a number format on a device."""
    if device.type != "cpu" or dtype not in (torch.float32, torch.bfloat16):
        return (TORCH,)
    return (TORCH, *(("by_head",) if supports_onednn(dtype, device) else ()), "two_products")


def _onednn_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    key_mask: Tensor | None,
    total: Tensor | None = None,
    bounded: bool = False,
) -> Tensor:
    """`attention` by chunks of rows of one head; adds the weights of all heads to `total`.

    `total` is [B, n, T] or None, `bounded` as in `_exp2_scores`.
    """
    batch, n, heads, width = q.shape
    shared, rows = heads // k.shape[1], -(-n // -(-n * k.shape[2] // _most_scores(q)))
    scaled = q * (width**-0.5 * LOG2_E)
    out, k, v = torch.empty_like(q), k.contiguous(), v.contiguous().mT
    for i in range(batch):
        hidden = _hidden_parts(key_mask, i, rows, -(-n // rows))
        sums = [None] * -(-n // rows) if total is None else total[i].split(rows)
        for head in range(heads):
            keys, values = k[i, head // shared], v[i, head // shared]
            queries, results = scaled[i, :, head].split(rows), out[i, :, head].split(rows)
            for query, result, added, out_of_sight in zip(
                queries, results, sums, hidden, strict=True
            ):
                pad = needs_padding(len(query))
                scores = onednn_linear(query, keys, pad_rows=pad)
                weights = _exp2_scores(scores, out_of_sight, bounded)
                denominator = weights.sum(-1, keepdim=True)
                torch.div(onednn_linear(weights, values, pad_rows=pad), denominator, out=result)
                if added is not None:
                    added.addcdiv_(weights, denominator)
    return out.flatten(2)


def _chunked_attention(
    q: Tensor, k: Tensor, v: Tensor, key_mask: Tensor | None, bounded: bool = False
) -> Tensor:
    """`attention` by chunks of rows of all heads; `bounded` as in `_exp2_scores`."""
    k, v, queries = k.contiguous(), v.contiguous(), _grouped(q, k.shape[1], LOG2_E)
    size, parts = max(16, _most_scores(q) // (k.shape[1] * k.shape[2])), []
    mask = None if key_mask is None else _by_grouped_row(key_mask, queries.shape[2])
    for start in range(0, queries.shape[2], size):
        rows, hidden = queries[:, :, start : start + size], None
        if mask is not None:
            hidden = ~(mask if mask.shape[2] == 1 else mask[:, :, start : start + size])
        weights = _exp2_scores(rows @ k.mT, hidden, bounded)
        parts.append((weights @ v).div_(weights.sum(-1, keepdim=True)))
    return _ungrouped(torch.cat(parts, 2), q)


OWN_ROUTINES: Mapping[str, Callable[..., Tensor]] = MappingProxyType({
    "by_head": _onednn_attention, "two_products": _chunked_attention,
})  # fmt: skip


def bounded_attention(
    q: Tensor, k: Tensor, v: Tensor, key_mask: Tensor | None, routine: str
) -> Tensor:
    """`attention` by one of OWN_ROUTINES, without the maximum of scores that are small enough.

    No score exceeds the product of the longest query and the longest key. In bfloat16 the maximum
    of each row and its subtraction take up to a quarter of the time of an attention.
    """
    queries, keys = (float(torch.linalg.vector_norm(x, dim=-1).amax()) for x in (q, k))
    bounded = queries * keys * q.shape[-1] ** -0.5 * LOG2_E < MAX_EXPONENT
    return OWN_ROUTINES[routine](q, k, v, key_mask, bounded=bounded)


# An operation of its own, which reads numbers on the host: a tape repeats it as a whole.
LIBRARY = torch.library.Library("driftscope", "DEF")
LIBRARY.define("attention(Tensor q, Tensor k, Tensor v, Tensor? key_mask, str routine) -> Tensor")
LIBRARY.impl("attention", bounded_attention, "CPU")
BOUNDED_ATTENTION = torch.ops.driftscope.attention


def _most_scores(q: Tensor) -> int:
    """The number of scores that are computed at a time for queries of a number format."""
    return MAX_SCORE_BYTES // q.element_size()


def _exp2_scores(scores: Tensor, hidden: Tensor | None, bounded: bool) -> Tensor:
    """Unnormalized softmax weights: 2 ** `scores` [..., T] in place, 0 where `hidden`.

    Each row's maximum is subtracted first, so that no power overflows, unless scores are `bounded`.
    """
    if hidden is not None:
        scores.masked_fill_(hidden, -torch.inf)
    if not bounded:
        scores -= scores.amax(-1, keepdim=True)
    return scores.exp2_()


def _grouped(q: Tensor, kv_heads: int, factor: float = 1) -> Tensor:
    """Scaled queries [B, n, H, dh], grouped by the key head they share: [B, Hkv, H/Hkv * n, dh]."""
    scaled = q.transpose(1, 2) * (q.shape[-1] ** -0.5 * factor)
    return scaled.reshape(len(q), kv_heads, -1, q.shape[-1])


def _softmax_weights(rows: Tensor, k: Tensor, key_mask: Tensor | None) -> Tensor:
    """Attention weights of scaled query `rows` [B, Hkv, m, dh], [B, Hkv, m, T]."""
    scores = rows @ k.mT
    if key_mask is not None:
        mask = _by_grouped_row(key_mask, rows.shape[2])
        scores = scores.masked_fill(~mask, -torch.inf)
    return scores.softmax(-1)


def _by_row(key_mask: Tensor) -> Tensor:
    """A mask [B, T] or [B or 1, n, T] as [B or 1, 1 or n, T]."""
    return key_mask[:, None] if key_mask.ndim == 2 else key_mask


def _by_grouped_row(key_mask: Tensor, grouped: int) -> Tensor:
    """A mask as [B or 1, 1, 1 or `grouped`, T], for so many rows of `_grouped` queries."""
    mask = _by_row(key_mask)
    if mask.shape[1] > 1:
        mask = mask.repeat(1, grouped // mask.shape[1], 1)
    return mask[:, None]


def _hidden_parts(
    key_mask: Tensor | None, sequence: int, rows: int, count: int
) -> Sequence[Tensor | None]:
    """The keys hidden from each of `count` chunks of `rows` rows of a sequence."""
    if key_mask is None:
        return [None] * count
    hidden = ~key_mask[sequence if len(key_mask) > 1 else 0]
    return [hidden] * count if hidden.ndim == 1 else hidden.split(rows)


def _ungrouped(out: Tensor, q: Tensor) -> Tensor:
    """Results [B, Hkv, H / Hkv * n, dh] of `_grouped` queries as [B, n, H * dh]."""
    batch, n, heads, width = q.shape
    return out.view(batch, heads, n, width).transpose(1, 2).flatten(2)
