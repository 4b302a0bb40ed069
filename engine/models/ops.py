"""Arithmetic that adapters share: rotary positions, RMS norm, attention."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor


def wide(x: Tensor) -> Tensor:
    """`x` in at least float32: statistics are never taken in a half format."""
    return x.float() if x.dtype in (torch.float16, torch.bfloat16) else x


def rms_norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    """RMSNorm of the last dimension: statistics wide, cast back, then scaled (LLaDA's order)."""
    if x.dtype in (torch.float16, torch.bfloat16):
        y = x.float()
        return (y * torch.rsqrt(y.square().mean(-1, keepdim=True) + eps)).to(x.dtype) * weight
    return F.rms_norm(x, (x.shape[-1],), weight, eps)


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

    def __call__(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        """Rotate `x` [B, n, H, dh] by the table rows given; computed in the tables' format."""
        half = x.shape[-1] // 2
        y = x.to(cos.dtype)
        return (y * cos + y.roll(half, -1) * sin).to(x.dtype)


def attention(q: Tensor, k: Tensor, v: Tensor, key_mask: Tensor | None) -> Tensor:
    """Bidirectional attention of q [B, n, H, dh] over k, v [B, Hkv, T, dh] -> [B, n, H * dh].

    `key_mask` [B, T] bool, True where a key may be seen.
    """
    mask = None if key_mask is None else key_mask[:, None, None]
    out = F.scaled_dot_product_attention(
        q.transpose(1, 2), k, v, attn_mask=mask, enable_gqa=k.shape[1] != q.shape[2]
    )
    return out.transpose(1, 2).flatten(2)


def attention_weighed(
    q: Tensor, k: Tensor, v: Tensor, key_mask: Tensor | None
) -> tuple[Tensor, Tensor]:
    """`attention` written out: its result and its weights, mean over the heads, [B, n, T]."""
    groups = q.shape[2] // k.shape[1]
    keys, values = k.repeat_interleave(groups, 1), v.repeat_interleave(groups, 1)
    scores = wide(q.transpose(1, 2) @ keys.mT) * q.shape[-1] ** -0.5
    if key_mask is not None:
        scores = scores.masked_fill(~key_mask[:, None, None], -torch.inf)
    weights = scores.softmax(-1)
    out = weights.to(v.dtype) @ values
    return out.transpose(1, 2).flatten(2), weights.mean(1)
