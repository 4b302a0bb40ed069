# ruff: noqa: ANN001, ANN202
# mypy: allow-untyped-defs
"""The kernels of `engine.models.kernels.fused`, in Triton; imported only where it is installed.

Each rounds where torch's operations would: statistics, angles and drifts in float32, other results
in the number format of the input. Partial results of attention are float32. A kernel has no
annotations but `tl.constexpr`: Triton evaluates all others.
"""

from __future__ import annotations

from functools import lru_cache

import torch
import triton
import triton.language as tl
from torch import Tensor

from engine.core.rows import ALL, Rows
from engine.models.attention import LOG2_E
from engine.models.kernels.triton_rows import ROW_KERNELS, values_of_program, warps

COLUMNS = 1024  # of the gate that a program computes
HEADS = 16  # of a row that a program rotates
OUTPUTS = 32  # of gate and of up that a program computes
INPUTS = 128  # that it reads at a time
KEYS = 64  # that a program of attention reads at a time
JOINED = 8  # heads of a row whose parts a program joins


def rms_norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    """The norm of rows [..., D], cast, then scaled by `weight` [D]."""
    assert x.stride(-1) == 1, "x: the last dimension is contiguous"
    rows = x.reshape(-1, x.shape[-1])
    out, block = torch.empty_like(rows), triton.next_power_of_2(rows.shape[1])
    with torch.cuda.device_of(x):
        _rms_norm[(len(rows),)](
            rows, weight, out, rows.stride(0), eps, rows.shape[1], block, num_warps=warps(block)
        )
    return out.view(x.shape)


def rotate(x: Tensor, table: Tensor, rows: Rows) -> Tensor:
    """Heads `x` [B, n, H, dh] rotated to global `rows`, by the table of `ops.Rotary`."""
    assert x.stride(-1) == table.stride(-1) == 1, "the last dimension is contiguous"
    batch, n, heads, width = x.shape
    out = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    half_block = triton.next_power_of_2(width // 2)
    places, start, indexed = _places(rows, x)
    with torch.cuda.device_of(x):
        _rotate[(n, batch, triton.cdiv(heads, HEADS))](
            x, table, places, out, *x.stride()[:3], table.stride(1), n, heads, start,
            width // 2, HEADS, half_block, indexed, num_warps=warps(HEADS * half_block),
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


def swiglu(x: Tensor, weight: Tensor) -> Tensor:
    """SiLU(gate(x)) * up(x) of few rows [..., D] with `weight` [2 E, D], gate over up; [..., E]."""
    rows, inner = x.reshape(-1, x.shape[-1]).contiguous(), len(weight) // 2
    out = torch.empty(len(rows), inner, dtype=x.dtype, device=x.device)
    row_block = max(16, triton.next_power_of_2(len(rows)))
    with torch.cuda.device_of(x):
        _swiglu[(triton.cdiv(inner, OUTPUTS),)](
            rows, weight, out, len(rows), inner, rows.shape[1], row_block, OUTPUTS, INPUTS,
            num_warps=2, num_stages=4,
        )  # fmt: skip
    return out.view(*x.shape[:-1], inner)


def attend(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Attention of few rows q [B, n, H, dh] over k, v [B, Hkv, T, dh] -> [B, n, H * dh].

    Several programs share the keys of a head, so that few rows keep a whole GPU busy. A second
    kernel averages their results, weighted by the sums of their exponentials.
    """
    assert q.stride(-1) == k.stride(-1) == v.stride(-1) == 1, "the last dimension is contiguous"
    (batch, n, heads, width), (kv_heads, keys) = q.shape, k.shape[1:3]
    block = max(16, triton.next_power_of_2(width))
    tiles = triton.cdiv(keys, KEYS * max(1, _processors(q.device) // (batch * heads)))
    tiles = triton.next_power_of_2(tiles)  # few numbers of tiles are compiled
    parts = triton.cdiv(keys, KEYS * tiles)
    averages = torch.empty(parts, batch, heads, n, width, dtype=torch.float32, device=q.device)
    log_sums = torch.empty(parts, batch, heads, n, dtype=torch.float32, device=q.device)
    out = torch.empty(batch, n, heads, width, dtype=q.dtype, device=q.device)
    with torch.cuda.device_of(q):
        _attend[(heads, batch, parts)](
            q, k, v, averages, log_sums, *q.stride()[:3], *k.stride()[:3], *v.stride()[:3], n, keys,
            LOG2_E * width**-0.5, tiles, heads, heads // kv_heads, width,
            max(16, triton.next_power_of_2(n)), KEYS, block, num_warps=4,
        )  # fmt: skip
        _join[(n, batch, triton.cdiv(heads, JOINED))](
            averages, log_sums, out, n, batch, parts, heads, width, JOINED, block, num_warps=4,
        )  # fmt: skip
    return out.flatten(2)


KERNELS = {
    "norm": rms_norm, "rotation": rotate, "gate": gate, "swiglu": swiglu, "attention": attend,
    **ROW_KERNELS,
}  # fmt: skip


def _places(rows: Rows, like: Tensor) -> tuple[Tensor, int, bool]:
    """Rows for a kernel: an index or any tensor, the first row, and whether there is an index."""
    if isinstance(rows, Tensor):
        assert len(rows) == len(like), "an index has the rows of each sequence"
        return rows.contiguous(), 0, True
    return like, 0 if rows is ALL else rows.start, False


@lru_cache
def _processors(device: torch.device) -> int:
    """Number of multiprocessors of a GPU; 4 for an interpreter."""
    if device.type != "cuda":
        return 4
    return int(torch.cuda.get_device_properties(device).multi_processor_count)


@triton.jit
def _rms_norm(x, weight, out, stride, eps, width: tl.constexpr, block: tl.constexpr):
    row, at = tl.program_id(0).to(tl.int64), tl.arange(0, block)
    inside = at < width
    y = tl.load(x + row * stride + at, mask=inside, other=0.0).to(tl.float32)
    y = y * tl.rsqrt(tl.sum(y * y, 0) / width + eps)
    y = y.to(out.dtype.element_ty).to(tl.float32)
    scaled = y * tl.load(weight + at, mask=inside, other=0.0).to(tl.float32)
    tl.store(out + row * width + at, scaled.to(out.dtype.element_ty), mask=inside)


@triton.jit(do_not_specialize=["n", "heads", "start"])
def _rotate(
    x, table, places, out, x_batch, x_row, x_head, table_row, n, heads, start,
    half: tl.constexpr, head_block: tl.constexpr, half_block: tl.constexpr, indexed: tl.constexpr,
):  # fmt: skip
    row, sequence, head, at = values_of_program(head_block, half_block)
    inside = (head < heads) & (at < half)
    source = x + sequence * x_batch + row * x_row + head * x_head + at
    first = tl.load(source, mask=inside, other=0.0).to(tl.float32)
    second = tl.load(source + half, mask=inside, other=0.0).to(tl.float32)
    place = row + start
    if indexed:
        place = tl.load(places + sequence * n + row)
    angle = table + place * table_row + at
    cos, sin, known = angle, angle + 2 * half, at < half
    turned = first * tl.load(cos, mask=known, other=0.0)
    turned += second * tl.load(sin, mask=known, other=0.0)
    other = second * tl.load(cos + half, mask=known, other=0.0)
    other += first * tl.load(sin + half, mask=known, other=0.0)
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


@triton.jit(do_not_specialize=["n"])
def _swiglu(
    x, weight, out, n, inner: tl.constexpr, width: tl.constexpr, row_block: tl.constexpr,
    block: tl.constexpr, width_block: tl.constexpr,
):  # fmt: skip
    output = tl.program_id(0) * block + tl.arange(0, block)
    row, at = tl.arange(0, row_block), tl.arange(0, width_block)
    known, real = output < inner, row < n
    gate_at = weight + output[:, None].to(tl.int64) * width + at[None, :]
    rows_at = x + row[None, :] * width + at[:, None]
    gate, up = tl.zeros((block, row_block), tl.float32), tl.zeros((block, row_block), tl.float32)
    for first in range(0, width, width_block):
        inside = at < width - first
        seen = known[:, None] & inside[None, :]
        rows = tl.load(rows_at + first, mask=real[None, :] & inside[:, None], other=0.0)
        part = tl.load(gate_at + first, mask=seen, other=0.0, eviction_policy="evict_first")
        gate = tl.dot(part, rows, gate, input_precision="ieee")
        part = tl.load(gate_at + inner * width + first, mask=seen, other=0.0,
                       eviction_policy="evict_first")  # fmt: skip
        up = tl.dot(part, rows, up, input_precision="ieee")
    number = out.dtype.element_ty
    gate, up = gate.to(number).to(tl.float32), up.to(number).to(tl.float32)
    gate = (gate / (1.0 + tl.exp(-gate))).to(number).to(tl.float32)
    target = out + row[None, :] * inner + output[:, None]
    tl.store(target, (gate * up).to(number), mask=known[:, None] & real[None, :])


@triton.jit(do_not_specialize=["n", "keys"])
def _attend(
    q, k, v, averages, log_sums, q_batch, q_row, q_head, k_batch, k_head, k_row, v_batch, v_head,
    v_row, n, keys, scale, tiles: tl.constexpr, heads: tl.constexpr, shared: tl.constexpr,
    width: tl.constexpr, row_block: tl.constexpr, key_block: tl.constexpr, block: tl.constexpr,
):  # fmt: skip
    head, sequence = tl.program_id(0).to(tl.int64), tl.program_id(1).to(tl.int64)
    part, batch = tl.program_id(2), tl.num_programs(1)
    row, at = tl.arange(0, row_block)[:, None], tl.arange(0, block)
    real, known = row < n, at < width
    query = tl.load(q + sequence * q_batch + head * q_head + row * q_row + at[None, :],
                    mask=real & known[None, :], other=0.0)  # fmt: skip
    k += sequence * k_batch + head // shared * k_head
    v += sequence * v_batch + head // shared * v_head
    largest = tl.full((row_block,), float("-inf"), tl.float32)
    total = tl.zeros((row_block,), tl.float32)
    result = tl.zeros((row_block, block), tl.float32)
    for tile in range(tiles):
        key = (part * tiles + tile) * key_block + tl.arange(0, key_block)
        seen = key < keys
        some = tl.load(k + key[None, :] * k_row + at[:, None],
                       mask=seen[None, :] & known[:, None], other=0.0)  # fmt: skip
        scores = tl.dot(query, some, input_precision="ieee") * scale
        scores = tl.where(seen[None, :], scores, float("-inf"))
        higher = tl.maximum(largest, tl.max(scores, 1))
        weights, before = tl.exp2(scores - higher[:, None]), tl.exp2(largest - higher)
        values = tl.load(v + key[:, None] * v_row + at[None, :],
                         mask=seen[:, None] & known[None, :], other=0.0)  # fmt: skip
        total = total * before + tl.sum(weights, 1)
        weights = weights.to(values.dtype)
        result = tl.dot(weights, values, result * before[:, None], input_precision="ieee")
        largest = higher
    place = ((part * batch + sequence) * heads + head) * n + row
    target = averages + place * width + at[None, :]
    tl.store(target, result / total[:, None], mask=real & known[None, :])
    tl.store(log_sums + place, (largest + tl.log2(total))[:, None], mask=real)


@triton.jit(do_not_specialize=["n"])
def _join(
    averages, log_sums, out, n, batch, parts: tl.constexpr, heads: tl.constexpr,
    width: tl.constexpr, head_block: tl.constexpr, block: tl.constexpr,
):  # fmt: skip
    row, sequence, head, at = values_of_program(head_block, block)
    inside = (head < heads) & (at < width)
    place = (sequence * heads + head) * n + row
    step = batch * heads * n
    largest = tl.full((head_block, 1), float("-inf"), tl.float32)
    total = tl.zeros((head_block, 1), tl.float32)
    result = tl.zeros((head_block, block), tl.float32)
    for part in range(parts):
        scale = tl.load(log_sums + place + part * step, mask=head < heads, other=0.0)
        found = tl.load(averages + (place + part * step) * width + at, mask=inside, other=0.0)
        higher = tl.maximum(largest, scale)
        weight, before = tl.exp2(scale - higher), tl.exp2(largest - higher)
        total = total * before + weight
        result = result * before + found * weight
        largest = higher
    target = out + ((sequence * n + row) * heads + head) * width + at
    tl.store(target, (result / total).to(out.dtype.element_ty), mask=inside)
