"""Attention over keys and values, in both directions or under a mask of each row."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from itertools import product
from types import MappingProxyType

import torch
import torch.nn.functional as F
from torch import Tensor

from engine.models.kernels.choice import TORCH
from engine.models.kernels.linear import needs_padding, onednn_linear, supports_onednn
from engine.models.ops import upcast

MAX_SCORE_BYTES = 2 << 20  # attention scores of a chunk, for the cache of one CPU core
LEAST_ROWS = 16  # by which attention is cut into chunks
MAX_SUM = 2.0**64  # of weights: within it and its inverse no power of 2 overflows or vanishes
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
    if routine in OWN_ROUTINES:
        found: Tensor = OWN_ATTENTION(q, k, v, key_mask, routine)
        return found
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
        out, _ = _attention_by_head(q, k, v, key_mask, True, total)
        return out, total.div_(q.shape[2])
    weights = _softmax_weights(_grouped(q, k.shape[1]), k, key_mask)
    by_head = weights.view(len(q), q.shape[2], q.shape[1], -1)
    return _ungrouped(weights @ v, q), upcast(by_head).mean(1)


def attention_routines(dtype: torch.dtype, device: torch.device) -> tuple[str, ...]:
    """The routines that compute attention in a number format on a device."""
    if device.type != "cpu" or dtype not in (torch.float32, torch.bfloat16):
        return (TORCH,)
    return (TORCH, *(("by_head",) if supports_onednn(dtype, device) else ()), "two_products")


def own_attention(q: Tensor, k: Tensor, v: Tensor, key_mask: Tensor | None, routine: str) -> Tensor:
    """`attention` by one of OWN_ROUTINES, without the maxima of its scores unless they are needed.

    A row's maximum is subtracted from its scores so that no power overflows. Finding and
    subtracting it takes up to a quarter of the time of an attention, and few scores need it, as the
    sums of their powers show.
    """
    compute = OWN_ROUTINES[routine]
    out, sums = compute(q, k, v, key_mask, False)
    low, high = (float(end) for end in sums.aminmax())
    if low >= 1 / MAX_SUM and high <= MAX_SUM:
        return out
    return compute(q, k, v, key_mask, True)[0]


# An operation of its own, which reads numbers on the host: a tape repeats it as a whole.
LIBRARY = torch.library.Library("driftscope", "DEF")
LIBRARY.define("attention(Tensor q, Tensor k, Tensor v, Tensor? key_mask, str routine) -> Tensor")
LIBRARY.impl("attention", own_attention, "CPU")
OWN_ATTENTION = torch.ops.driftscope.attention


def _attention_by_head(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    key_mask: Tensor | None,
    subtract: bool,
    total: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """`attention` by chunks of rows of one head, and the sums of its powers, [B, H, n, 1].

    `subtract` as in `_exp2_scores`. The weights of all heads are added to `total` [B, n, T].
    """
    batch, n, heads, width = q.shape
    shared, rows = heads // k.shape[1], _chunk_rows(q, n, n * k.shape[2])
    scaled, sums = q * (width**-0.5 * LOG2_E), q.new_empty(batch, heads, n, 1)
    out, k, v = torch.empty_like(q), k.contiguous(), v.contiguous().mT
    hidden = _hidden_parts(key_mask, rows, n)
    for i, head in product(range(batch), range(heads)):
        keys, values = k[i, head // shared], v[i, head // shared]
        added = [None] * len(hidden) if total is None else total[i].split(rows)
        for query, result, divisor, unseen, weighed in zip(
            scaled[i, :, head].split(rows), out[i, :, head].split(rows),
            sums[i, head].split(rows), hidden, added, strict=True,
        ):  # fmt: skip
            pad = needs_padding(len(query))
            scores = onednn_linear(query, keys, pad_rows=pad)
            own = None if unseen is None else unseen[i % len(unseen)]
            powers = _exp2_scores(scores, own, subtract)
            torch.sum(powers, -1, keepdim=True, out=divisor)
            torch.div(onednn_linear(powers, values, pad_rows=pad), divisor, out=result)
            if weighed is not None:
                weighed.addcdiv_(powers, divisor)
    return out.flatten(2), sums


def _attention_in_two_products(
    q: Tensor, k: Tensor, v: Tensor, key_mask: Tensor | None, subtract: bool
) -> tuple[Tensor, Tensor]:
    """`attention` by chunks of rows of all sequences and heads, and the sums of its powers.

    `subtract` as in `_exp2_scores`. The sums are [B, Hkv, H / Hkv, n, 1].
    """
    batch, n, heads, width = q.shape
    groups, keys = k.shape[1:3]
    rows, out = _chunk_rows(q, n, heads * n * keys), torch.empty_like(q)
    scaled, results = (
        x.view(batch, n, groups, -1, width).permute(0, 2, 3, 1, 4)
        for x in (q * (width**-0.5 * LOG2_E), out)
    )
    sums = q.new_empty(*scaled.shape[:-1], 1)
    if q.dtype == torch.bfloat16:  # whose products of strided operands take longer than copies
        k, v = k.contiguous(), v.contiguous()
    k, v = k.flatten(0, 1).mT, v.flatten(0, 1)
    for start, unseen in zip(range(0, n, rows), _hidden_parts(key_mask, rows, n), strict=True):
        chunk = slice(start, start + rows)
        query, divisor = scaled[:, :, :, chunk], sums[:, :, :, chunk]
        powers = torch.bmm(query.reshape(len(k), -1, width), k)
        scores = powers.view(*query.shape[:-1], keys)
        _exp2_scores(scores, None if unseen is None else unseen[:, None, None], subtract)
        torch.sum(scores, -1, keepdim=True, out=divisor)
        summed = torch.bmm(powers, v).view(query.shape)
        torch.div(summed, divisor, out=results[:, :, :, chunk])
    return out.flatten(2), sums


OWN_ROUTINES: Mapping[str, Callable[..., tuple[Tensor, Tensor]]] = MappingProxyType({
    "by_head": _attention_by_head, "two_products": _attention_in_two_products,
})  # fmt: skip


def _chunk_rows(q: Tensor, rows: int, scores: int) -> int:
    """The rows of a chunk, if all `rows` have so many scores of the type of `q`."""
    chunks = -(-scores * q.element_size() // MAX_SCORE_BYTES)
    return -(-rows // min(chunks, -(-rows // LEAST_ROWS)))


def _exp2_scores(scores: Tensor, hidden: Tensor | None, subtract: bool) -> Tensor:
    """2 ** `scores` [..., T] in place, 0 where `hidden`.

    `subtract`: each row's maximum is subtracted first, so that no power overflows.
    """
    if hidden is not None:
        scores.masked_fill_(hidden, -torch.inf)
    if subtract:
        scores -= scores.amax(-1, keepdim=True)
    return scores.exp2_()


def _hidden_parts(key_mask: Tensor | None, rows: int, n: int) -> Sequence[Tensor | None]:
    """The keys that are hidden from each chunk of `rows` of `n` rows, [B or 1, 1 or rows, T]."""
    count = -(-n // rows)
    if key_mask is None:
        return [None] * count
    hidden = ~_by_row(key_mask)
    return [hidden] * count if hidden.shape[1] == 1 else hidden.split(rows, 1)


def _grouped(q: Tensor, kv_heads: int) -> Tensor:
    """Scaled queries [B, n, H, dh], grouped by the key head they share: [B, Hkv, H/Hkv * n, dh]."""
    scaled = q.transpose(1, 2) * q.shape[-1] ** -0.5
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


def _ungrouped(out: Tensor, q: Tensor) -> Tensor:
    """Results [B, Hkv, H / Hkv * n, dh] of `_grouped` queries as [B, n, H * dh]."""
    batch, n, heads, width = q.shape
    return out.view(batch, heads, n, width).transpose(1, 2).flatten(2)
