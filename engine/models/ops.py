"""Arithmetic that adapters share: rotary positions, RMS norm, attention."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from engine.rows import Rows, take

SCORES = 5 << 16  # attention scores held at a time, so that they stay in a core's cache


def wide(x: Tensor) -> Tensor:
    """`x` in at least float32: statistics are never taken in a half format."""
    return x.float() if x.dtype in (torch.float16, torch.bfloat16) else x


def rms_norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    """RMSNorm of the last dimension: statistics wide, cast back, then scaled (LLaDA's order)."""
    y = wide(x)
    scale = y.square().mean(-1, keepdim=True).add_(eps).rsqrt_()
    return (y * scale).to(x.dtype).mul_(weight)


class Rotary:
    """Rotate-half rotary embedding with tables for a canvas of `length` positions."""

    def __init__(
        self, length: int, head_dim: int, theta: float, dtype: torch.dtype, device: torch.device
    ) -> None:
        kind = torch.float64 if dtype == torch.float64 else torch.float32
        power = torch.arange(0, head_dim, 2, dtype=kind, device=device) / head_dim
        angle = torch.arange(length, dtype=kind, device=device)[:, None] * theta**-power
        self.cos = angle.cos().repeat(1, 2)[None, :, None]  # [1, T, 1, dh]
        sin = angle.sin()
        self.sin = torch.cat((-sin, sin), -1)[None, :, None]  # [1, T, 1, dh]

    def angles(self, rows: Rows) -> tuple[Tensor, Tensor]:
        """Table rows [1 or B, n, 1, dh] of global positions."""
        if isinstance(rows, Tensor) and len(rows) > 1:
            return self.cos[0, rows], self.sin[0, rows]
        return take(self.cos, rows), take(self.sin, rows)

    def __call__(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        """Rotate `x` [B, n, H, dh] by the table rows given; computed in the tables' format."""
        y = x.to(cos.dtype)
        turned = y.roll(x.shape[-1] // 2, -1)
        return (y * cos).add_(turned.mul_(sin)).to(x.dtype)


def attention(q: Tensor, k: Tensor, v: Tensor, key_mask: Tensor | None) -> Tensor:
    """Bidirectional attention of q [B, n, H, dh] over k, v [B, Hkv, T, dh] -> [B, n, H * dh].

    `key_mask` [B, T] bool, True where a key may be seen. In bfloat16 on a CPU two products and a
    softmax are faster than the fused kernel; their scores round as bfloat16 does.
    """
    if q.dtype == torch.bfloat16 and q.device.type == "cpu":
        k, v = k.contiguous(), v.contiguous()
        rows = _grouped(q, k.shape[1]).split(max(16, SCORES // (k.shape[1] * k.shape[2])), 2)
        out = torch.cat([_weights(part, k, key_mask) @ v for part in rows], 2)
        return _flat(out, q)
    mask = None if key_mask is None else key_mask[:, None, None]
    out = F.scaled_dot_product_attention(
        q.transpose(1, 2), k, v, attn_mask=mask, enable_gqa=k.shape[1] != q.shape[2]
    )
    return out.transpose(1, 2).flatten(2)


def attention_weighed(
    q: Tensor, k: Tensor, v: Tensor, key_mask: Tensor | None
) -> tuple[Tensor, Tensor]:
    """`attention` written out: its result and its weights, mean over the heads, [B, n, T]."""
    weights = _weights(_grouped(q, k.shape[1]), k, key_mask)
    by_head = weights.view(len(q), q.shape[2], q.shape[1], -1)
    return _flat(weights @ v, q), wide(by_head).mean(1)


def _grouped(q: Tensor, kv_heads: int) -> Tensor:
    """Queries [B, n, H, dh], scaled, by the head that they share: [B, Hkv, H / Hkv * n, dh]."""
    scaled = q.transpose(1, 2) * q.shape[-1] ** -0.5
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
