"""RMS norm, rotary positions, drift and the dtype of statistics, shared by all adapters."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from engine.core.rows import ALL, Rows
from engine.models.kernels.choice import Kernels

ROUNDING = 64  # a drift that is smaller than the square of so many roundings is 0


def upcast(x: Tensor) -> Tensor:
    """`x` in float32 if it is float16 or bfloat16, else unchanged."""
    return x.float() if x.dtype in (torch.float16, torch.bfloat16) else x


def rms_norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    """RMS norm of rows [..., D]: float32 statistics, cast back, then scaled by `weight` [D].

    This is LLaDA's order.
    """
    if x.dtype in (torch.float32, torch.float64):  # there is no cast between norm and scale
        return F.rms_norm(x, x.shape[-1:], weight, eps)
    return F.rms_norm(x, x.shape[-1:], None, eps).mul_(weight)


def drift(new: Tensor, old: Tensor) -> Tensor:
    """1 - cosine of the last dimension, at least in float32: [B, n]; 0 within rounding.

    Computed as half the squared distance of unit vectors, which distinguishes drifts that are too
    small for a cosine.
    """
    wide = torch.promote_types(new.dtype, torch.float32)
    apart = F.normalize(new.to(wide), dim=-1) - F.normalize(old.to(wide), dim=-1)
    moved = apart.square().sum(-1) / 2
    return moved.masked_fill(moved < (ROUNDING * torch.finfo(wide).eps) ** 2, 0.0)


class RMSNorm(nn.Module):
    """`rms_norm` of the last dimension, by torch or by a kernel of `kernels`."""

    def __init__(self, width: int, eps: float) -> None:
        super().__init__()
        self.weight, self.eps = nn.Parameter(torch.empty(width)), eps
        self.kernels = Kernels()

    def forward(self, x: Tensor) -> Tensor:
        """[..., D] -> [..., D]."""
        norm = self.kernels.fused.get("norm", rms_norm)
        return norm(x, self.weight, self.eps)


class Rotary:
    """Rotary position embedding (rotate-half form) for a canvas of `length` positions.

    The first `width` values of each head turn, as two halves; the others stay. The tables are
    float64 for float64 models, else float32. `fused` is a kernel that replaces torch's operations.
    """

    def __init__(
        self,
        length: int,
        width: int,
        theta: float,
        dtype: torch.dtype,
        device: torch.device,
        fused: Callable[..., Tensor] | None = None,
    ) -> None:
        self._fused = fused
        kind = torch.float64 if dtype == torch.float64 else torch.float32
        power = torch.arange(0, width, 2, dtype=kind, device=device) / width
        angle = torch.arange(length, dtype=kind, device=device)[:, None] * theta**-power
        cos, sin = angle.cos().repeat(1, 2), angle.sin()
        self._table = torch.cat((cos, -sin, sin), 1)[None, :, None]  # [1, T, 1, 2 width]
        self._range_angles = lru_cache(maxsize=8)(self._angles_between)

    def angles(self, rows: Rows) -> tuple[Tensor, Tensor]:
        """Cosines and sines [1 or B, n, 1, width] of global positions."""
        if isinstance(rows, Tensor):
            entries = self._table.index_select(1, rows.flatten())
            return _cos_sin(entries.view(*rows.shape, 1, -1))
        return self._range_angles(*((0, None) if rows is ALL else (rows.start, rows.stop)))

    def _angles_between(self, start: int, stop: int | None) -> tuple[Tensor, Tensor]:
        return _cos_sin(self._table[:, start:stop])

    def __call__(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        """Rotate `x` [B, n, H, dh] by `angles`; computed in the dtype of the tables."""
        width = cos.shape[-1]
        if x.shape[-1] > width:
            return torch.cat((self(x[..., :width], cos, sin), x[..., width:]), -1)
        if self._fused is not None:
            return self._fused(x, cos, sin)
        y = x.to(cos.dtype)
        swapped = y.roll(width // 2, -1)
        return (y * cos).add_(swapped.mul_(sin)).to(x.dtype)


def _cos_sin(entries: Tensor) -> tuple[Tensor, Tensor]:
    cos, sin = entries.chunk(2, -1)
    return cos, sin
