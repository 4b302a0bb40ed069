# ruff: noqa: ANN001, ANN202
# mypy: allow-untyped-defs
"""The kernels of `engine.models.kernels.fused`, in Triton; imported only where it is installed.

Each rounds where torch's operations would: statistics, angles and drifts in float32, other results
in the number format of the input. A kernel has no annotations but `tl.constexpr`: Triton evaluates
all others.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from engine.core.rows import Rows, take
from engine.models.ops import ROUNDING

COLUMNS = 1024  # of the gate that a program computes
HEADS = 16  # of a row that a program rotates
VALUES = 2048  # of a row that a program copies
LEAST_DRIFT = (ROUNDING * torch.finfo(torch.float32).eps) ** 2  # smaller ones are 0


def rms_norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    """The norm of rows [..., D], cast, then scaled by `weight` [D]."""
    assert x.stride(-1) == 1, "x: the last dimension is contiguous"
    rows = x.reshape(-1, x.shape[-1])
    out, block = torch.empty_like(rows), triton.next_power_of_2(rows.shape[1])
    with torch.cuda.device_of(x):
        _rms_norm[(len(rows),)](
            rows, weight, out, rows.stride(0), eps, rows.shape[1], block, num_warps=_warps(block)
        )
    return out.view(x.shape)


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Heads `x` [B, n, H, dh] rotated by float32 angles [1 or B, n, 1, dh]; see ops.Rotary."""
    assert x.stride(-1) == cos.stride(-1) == sin.stride(-1) == 1, "the last dimension is contiguous"
    batch, n, heads, width = x.shape
    out = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    half_block = triton.next_power_of_2(width // 2)
    per_sequence = cos.stride(0) if len(cos) == batch else 0
    with torch.cuda.device_of(x):
        _rotate[(n, batch, triton.cdiv(heads, HEADS))](
            x, cos, sin, out, *x.stride()[:3], per_sequence, cos.stride(1), n, heads,
            width // 2, HEADS, half_block, num_warps=_warps(HEADS * half_block),
        )  # fmt: skip
    return out


def gate(x: Tensor) -> Tensor:
    """SiLU(gate) * up of rows [..., 2 E] with gate before up, [..., E]."""
    inner = x.shape[-1] // 2
    rows = x.reshape(-1, 2 * inner).contiguous()
    out = torch.empty(len(rows), inner, dtype=x.dtype, device=x.device)
    with torch.cuda.device_of(x):
        _gate[(len(rows), triton.cdiv(inner, COLUMNS))](rows, out, inner, COLUMNS)
    return out.view(*x.shape[:-1], inner)


def drift(new: Tensor, old: Tensor) -> Tensor:
    """1 - cosine of rows [B, n, width], [B, n] float32; see `ops.drift`."""
    assert new.stride(-1) == old.stride(-1) == 1, "the last dimension is contiguous"
    batch, n, width = new.shape
    out = torch.empty(batch, n, dtype=torch.float32, device=new.device)
    block = triton.next_power_of_2(width)
    with torch.cuda.device_of(new):
        _drift[(n, batch)](
            new, old, out, *new.stride()[:2], *old.stride()[:2], n, LEAST_DRIFT, width, block,
            num_warps=_warps(block),
        )  # fmt: skip
    return out


def write(x: Tensor, rows: Rows, values: Tensor, dim: int = 1) -> Tensor:
    """Write values [B, n, width] or [B, heads, n, width] into `x` in place; see `rows.put`."""
    index = rows if isinstance(rows, Tensor) else None
    target = x if index is not None else take(x, rows, dim)
    if dim == 1:
        target, values = target[:, None], values[:, None]
    assert target.stride(-1) == values.stride(-1) == 1, "the last dimension is contiguous"
    batch, heads, n, width = values.shape
    width_block = triton.next_power_of_2(width)
    head_block = min(triton.next_power_of_2(heads), max(1, VALUES // width_block))
    places = target if index is None else index.contiguous()
    with torch.cuda.device_of(x):
        _write[(n, batch, triton.cdiv(heads, head_block))](
            target, places, values, *target.stride()[:3], *values.stride()[:3], n, heads,
            width, head_block, width_block, index is not None,
            num_warps=_warps(head_block * width_block),
        )  # fmt: skip
    return x


KERNELS = {"norm": rms_norm, "rotation": rotate, "gate": gate, "drift": drift, "write": write}


def _warps(elements: int) -> int:
    """Warps of a program that holds so many numbers."""
    return max(1, min(8, elements // 512))


@triton.jit
def _rms_norm(x, weight, out, stride, eps, width: tl.constexpr, block: tl.constexpr):
    row, at = tl.program_id(0).to(tl.int64), tl.arange(0, block)
    inside = at < width
    y = tl.load(x + row * stride + at, mask=inside, other=0.0).to(tl.float32)
    y = y * tl.rsqrt(tl.sum(y * y, 0) / width + eps)
    y = y.to(out.dtype.element_ty).to(tl.float32)
    scaled = y * tl.load(weight + at, mask=inside, other=0.0).to(tl.float32)
    tl.store(out + row * width + at, scaled.to(out.dtype.element_ty), mask=inside)


@triton.jit
def _values(head_block: tl.constexpr, width_block: tl.constexpr):
    """Row and sequence of a program, its heads [heads, 1] and their values [1, width]."""
    row, sequence = tl.program_id(0).to(tl.int64), tl.program_id(1).to(tl.int64)
    head = (tl.program_id(2) * head_block + tl.arange(0, head_block))[:, None]
    return row, sequence, head, tl.arange(0, width_block)[None, :]


@triton.jit(do_not_specialize=["n", "heads"])
def _rotate(
    x, cos, sin, out, x_batch, x_row, x_head, angle_batch, angle_row, n, heads,
    half: tl.constexpr, head_block: tl.constexpr, half_block: tl.constexpr,
):  # fmt: skip
    row, sequence, head, at = _values(head_block, half_block)
    inside = (head < heads) & (at < half)
    source = x + sequence * x_batch + row * x_row + head * x_head + at
    first = tl.load(source, mask=inside, other=0.0).to(tl.float32)
    second = tl.load(source + half, mask=inside, other=0.0).to(tl.float32)
    angle = sequence * angle_batch + row * angle_row + at
    known = at < half
    turned = first * tl.load(cos + angle, mask=known, other=0.0)
    turned += second * tl.load(sin + angle, mask=known, other=0.0)
    other = second * tl.load(cos + angle + half, mask=known, other=0.0)
    other += first * tl.load(sin + angle + half, mask=known, other=0.0)
    target = out + ((sequence * n + row) * heads + head) * (2 * half) + at
    tl.store(target, turned.to(out.dtype.element_ty), mask=inside)
    tl.store(target + half, other.to(out.dtype.element_ty), mask=inside)


@triton.jit
def _gate(x, out, inner: tl.constexpr, block: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    at = tl.program_id(1) * block + tl.arange(0, block)
    inside = at < inner
    y = tl.load(x + row * 2 * inner + at, mask=inside, other=0.0).to(tl.float32)
    y = (y / (1.0 + tl.exp(-y))).to(out.dtype.element_ty).to(tl.float32)
    up = tl.load(x + row * 2 * inner + inner + at, mask=inside, other=0.0).to(tl.float32)
    tl.store(out + row * inner + at, (y * up).to(out.dtype.element_ty), mask=inside)


@triton.jit
def _drift(
    new, old, out, new_batch, new_row, old_batch, old_row, n, least,
    width: tl.constexpr, block: tl.constexpr,
):  # fmt: skip
    row, sequence = tl.program_id(0).to(tl.int64), tl.program_id(1).to(tl.int64)
    at = tl.arange(0, block)
    inside = at < width
    x = tl.load(new + sequence * new_batch + row * new_row + at, mask=inside, other=0.0)
    y = tl.load(old + sequence * old_batch + row * old_row + at, mask=inside, other=0.0)
    x, y = x.to(tl.float32), y.to(tl.float32)
    x /= tl.maximum(tl.sqrt(tl.sum(x * x, 0)), 1e-12)
    y /= tl.maximum(tl.sqrt(tl.sum(y * y, 0)), 1e-12)
    moved = tl.sum((x - y) * (x - y), 0) / 2
    tl.store(out + sequence * n + row, tl.where(moved < least, 0.0, moved))


@triton.jit(do_not_specialize=["n", "heads"])
def _write(
    x, places, values, x_batch, x_head, x_row, value_batch, value_head, value_row, n, heads,
    width: tl.constexpr, head_block: tl.constexpr, width_block: tl.constexpr,
    indexed: tl.constexpr,
):  # fmt: skip
    row, sequence, head, at = _values(head_block, width_block)
    inside = (head < heads) & (at < width)
    source = values + sequence * value_batch + head * value_head + row * value_row + at
    found = tl.load(source, mask=inside)
    place = row
    if indexed:
        place = tl.load(places + sequence * n + row)
    tl.store(x + sequence * x_batch + head * x_head + place * x_row + at, found, mask=inside)
