# ruff: noqa: ANN001, ANN202
# mypy: allow-untyped-defs
"""The kernels of `engine.models.kernels.fused`, in Triton; imported only where it is installed.

Each rounds where torch's operations would: statistics and angles in float32, results in the number
format of the input. A kernel has no annotations but `tl.constexpr`: Triton evaluates all others.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

COLUMNS = 1024  # of the gate that a program computes
HEADS = 16  # of a row that a program rotates


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


KERNELS = {"norm": rms_norm, "rotation": rotate, "gate": gate}


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


@triton.jit(do_not_specialize=["n", "heads"])
def _rotate(
    x, cos, sin, out, x_batch, x_row, x_head, angle_batch, angle_row, n, heads,
    half: tl.constexpr, head_block: tl.constexpr, half_block: tl.constexpr,
):  # fmt: skip
    row, sequence = tl.program_id(0).to(tl.int64), tl.program_id(1).to(tl.int64)
    head = (tl.program_id(2) * head_block + tl.arange(0, head_block))[:, None]
    at = tl.arange(0, half_block)[None, :]
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
