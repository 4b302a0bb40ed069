"""RMS norm, rotary positions, drifts, branches and the dtype of statistics, for all adapters."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache, partial

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from engine.core.rows import ALL, Rows, put
from engine.models.kernels.choice import Kernels
from engine.models.kernels.linear import weight_stamp

SHORTEST = 1e-12  # by which a shorter row is divided to make a unit vector
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
    """1 - cosine of rows [B, n, ...], at least in float32: [B, n]; 0 within rounding.

    Computed as half the squared distance of unit vectors, which distinguishes drifts that are too
    small for a cosine.
    """
    return drift_of_units(unit_rows(new), unit_rows(old))


def unit_rows(x: Tensor) -> Tensor:
    """Rows [B, n, ...] as unit vectors [B, n, width], at least in float32."""
    rows = upcast(x.flatten(2))
    return rows / torch.linalg.vector_norm(rows, dim=-1, keepdim=True).clamp_min_(SHORTEST)


def drift_of_units(new: Tensor, old: Tensor) -> Tensor:
    """`drift` of unit vectors [B, n, width], [B, n]."""
    moved = torch.linalg.vector_norm(new - old, dim=-1).square_().mul_(0.5)
    return torch.threshold_(moved, least_drift(moved.dtype), 0.0)


def least_drift(dtype: torch.dtype) -> float:
    """The smallest drift that is no rounding error of numbers of a type."""
    return float((ROUNDING * torch.finfo(dtype).eps) ** 2)


def top_drift(drifts: Tensor, count: int | Tensor, start: int) -> tuple[Tensor, Tensor]:
    """The `count` rows of largest `drifts` [B, n], ties to the lower, [B, count].

    Returns global rows and their places in `drifts`; both ascend. `start` is the global row of
    place 0. If counts differ over the batch,
    `count` holds their ranks, see `engine.cache.selection.ranks`.
    """
    order = drifts.argsort(dim=1, descending=True, stable=True)
    first = order.gather(1, count) if isinstance(count, Tensor) else order.narrow(1, 0, count)
    places = first.sort(dim=1).values
    return places + start, places


def add_branches(h: Tensor, places: Tensor, attn: Tensor, ffn: Tensor, stored: Tensor) -> Tensor:
    """The residual stream `h` [B, R, D] plus both branches, which are computed at places [B, n].

    `attn` and `ffn` [B, n, D] are their outputs there. `stored` [B, R, D] is their sum at all rows,
    and is updated.
    """
    put(stored, places, attn + ffn)
    return h + stored


class RMSNorm(nn.Module):
    """`rms_norm` of the last dimension, by torch or by a kernel of `kernels`."""

    def __init__(self, width: int, eps: float) -> None:
        super().__init__()
        self.weight, self.eps = nn.Parameter(torch.empty(width)), eps
        self.kernels = Kernels()
        self._scaled: tuple[tuple[int, int], Tensor, Tensor, Tensor] | None = None

    def forward(self, x: Tensor) -> Tensor:
        """[..., D] -> [..., D]."""
        norm = self.kernels.fused.get("norm", rms_norm)
        full = x.dtype in (torch.float32, torch.float64)
        if norm is rms_norm and full and x.device.type == "cpu":
            return self._by_length(x)
        return norm(x, self.weight, self.eps)

    def _by_length(self, x: Tensor) -> Tensor:
        """`rms_norm` as x / sqrt(|x|^2 + D eps) * sqrt(D) weight: 4 operations of a CPU, not 7."""
        stamp = weight_stamp(self.weight)
        if self._scaled is None or self._scaled[0] != stamp:
            # Holding the weight keeps a later tensor from getting the same address.
            weight, root = self.weight.detach(), len(self.weight) ** 0.5
            least = weight.new_tensor(self.eps**0.5 * root)
            self._scaled = stamp, weight, weight * root, least
        *_, scale, least = self._scaled
        length = torch.linalg.vector_norm(x, dim=-1, keepdim=True).hypot_(least)
        return (x / length).mul_(scale)


class Rotary:
    """Rotary position embedding (rotate-half form) for a canvas of `length` positions.

    The first `width` values of each head turn, as two halves; the others stay. The tables are
    float64 for float64 models, else float32. `fused` is a kernel that replaces torch's operations;
    it reads `table`, [1, T, 1, 2 width] of cosines, negative sines and sines.
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
        self.table = torch.cat((cos, -sin, sin), 1)[None, :, None]
        # Not a method of self, whose cache would be a reference cycle.
        self._range_angles = lru_cache(maxsize=8)(partial(_angles_between, self.table))

    def angles(self, rows: Rows) -> tuple[Tensor, Tensor]:
        """Cosines and sines [1 or B, n, 1, width] of global positions."""
        if isinstance(rows, Tensor):
            entries = self.table.index_select(1, rows.flatten())
            return _cos_sin(entries.view(*rows.shape, 1, -1))
        return self._range_angles(*((0, None) if rows is ALL else (rows.start, rows.stop)))

    def __call__(self, x: Tensor, rows: Rows) -> Tensor:
        """Rotate `x` [B, n, H, dh] to global positions; computed in the dtype of the tables."""
        width = self.table.shape[-1] // 2
        if x.shape[-1] > width:
            return torch.cat((self(x[..., :width], rows), x[..., width:]), -1)
        if self._fused is not None:
            return self._fused(x, self.table, rows)
        cos, sin = self.angles(rows)
        y = x.to(cos.dtype)
        return (y * cos).addcmul_(y.roll(width // 2, -1), sin).to(x.dtype)


def _angles_between(table: Tensor, start: int, stop: int | None) -> tuple[Tensor, Tensor]:
    return _cos_sin(table[:, start:stop])


def _cos_sin(entries: Tensor) -> tuple[Tensor, Tensor]:
    cos, sin = entries.chunk(2, -1)
    return cos, sin
