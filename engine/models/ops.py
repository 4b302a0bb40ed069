"""Arithmetic that adapters share: rotary positions, RMS norm."""

from __future__ import annotations

from functools import lru_cache

import torch
from torch import Tensor

from engine.core.rows import ALL, Rows


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
        cos, sin = angle.cos().repeat(1, 2), angle.sin()
        self._table = torch.cat((cos, -sin, sin), 1)[None, :, None]  # [1, T, 1, 2 dh]
        self._between = lru_cache(maxsize=8)(self._taken)

    def angles(self, rows: Rows) -> tuple[Tensor, Tensor]:
        """Cosines and sines [1 or B, n, 1, dh] of global positions."""
        if isinstance(rows, Tensor):
            taken = self._table.index_select(1, rows.flatten())
            return _halves(taken.view(*rows.shape, 1, -1))
        return self._between(*((0, None) if rows is ALL else (rows.start, rows.stop)))

    def _taken(self, start: int, stop: int | None) -> tuple[Tensor, Tensor]:
        return _halves(self._table[:, start:stop])

    def __call__(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        """Rotate `x` [B, n, H, dh] by the table rows given; computed in the tables' format."""
        y = x.to(cos.dtype)
        cosine_drift = y.roll(x.shape[-1] // 2, -1)
        return (y * cos).add_(cosine_drift.mul_(sin)).to(x.dtype)


def _halves(angles: Tensor) -> tuple[Tensor, Tensor]:
    cos, sin = angles.chunk(2, -1)
    return cos, sin
