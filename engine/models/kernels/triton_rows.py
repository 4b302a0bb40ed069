# ruff: noqa: ANN001, ANN201, ANN202
# mypy: allow-untyped-defs
"""Triton kernels that compare, select, read and write rows; see `triton_kernels`."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from engine.core.rows import Rows, take
from engine.models.ops import least_drift

VALUES = 2048  # of a row that a program copies


def drift(new: Tensor, old: Tensor, replace: bool = False) -> Tensor:
    """1 - cosine of rows [B, n, width] or [B, n, heads, dh], [B, n] float32; see `ops.drift`.

    `replace` writes the new values over the old ones.
    """
    assert new.stride(-1) == old.stride(-1) == 1, "the last dimension is contiguous"
    if new.ndim == 3:
        new, old = new[:, :, None], old[:, :, None]
    batch, n, heads, inner = new.shape
    out = torch.empty(batch, n, dtype=torch.float32, device=new.device)
    block = triton.next_power_of_2(heads * inner)
    with torch.cuda.device_of(new):
        _drift[(n, batch)](
            new, old, out, *new.stride()[:3], *old.stride()[:3], n, least_drift(out.dtype),
            heads * inner, inner, block, replace, num_warps=warps(block),
        )  # fmt: skip
    return out


def select(drifts: Tensor, count: int, start: int) -> tuple[Tensor, Tensor]:
    """The `count` rows of largest `drifts` [B, n], none negative; see `ops.top_drift`."""
    batch, n = drifts.shape
    drifts, block = drifts.float().contiguous(), triton.next_power_of_2(n)
    rows, places = torch.empty(2, batch, count, dtype=torch.int64, device=drifts.device)
    with torch.cuda.device_of(drifts):
        _select[(batch,)](drifts, rows, places, n, count, start, block, num_warps=warps(block))
    return rows, places


def gather(x: Tensor, rows: Tensor, added: Tensor | None = None) -> Tensor:
    """Rows [B, n] of `x` [B, T, width], plus `added` [B, n, width] if given; see `rows.take`."""
    assert x.stride(-1) == 1, "the last dimension is contiguous"
    assert len(rows) == len(x), "an index has the rows of each sequence"
    (batch, n), width = rows.shape, x.shape[-1]
    out = torch.empty(batch, n, width, dtype=x.dtype, device=x.device)
    terms = out if added is None else added.contiguous()
    with torch.cuda.device_of(x):
        _gather[(n, batch, triton.cdiv(width, VALUES))](
            x, rows.contiguous(), terms, out, *x.stride()[:2], n, width, VALUES, added is not None,
        )  # fmt: skip
    return out


def add_branches(h: Tensor, rows: Tensor, attn: Tensor, ffn: Tensor, stored: Tensor) -> Tensor:
    """Both branches added to `h` [B, R, D], and stored at `rows` [B, n]; see `ops.add_branches`."""
    assert h.stride(-1) == stored.stride(-1) == 1, "the last dimension is contiguous"
    assert len(rows) == len(h), "an index has the rows of each sequence"
    (batch, n, width), count = h.shape, rows.shape[1]
    out = torch.empty_like(h, memory_format=torch.contiguous_format)
    with torch.cuda.device_of(h):
        _add_branches[(n, batch, triton.cdiv(width, VALUES))](
            h, rows.contiguous(), attn.contiguous(), ffn.contiguous(), stored, out,
            *h.stride()[:2], *stored.stride()[:2], n, count, width,
            triton.next_power_of_2(count), VALUES,
        )  # fmt: skip
    return out


def write(x: Tensor, rows: Rows, values: Tensor, dim: int = 1) -> Tensor:
    """Write values [B, n, width] or [B, heads, n, width] into `x` in place; see `rows.put`."""
    index = rows if isinstance(rows, Tensor) else None
    target = x if index is not None else take(x, rows, dim)
    if dim == 1:
        target, values = target[:, None], values[:, None]
    assert target.stride(-1) == values.stride(-1) == 1, "the last dimension is contiguous"
    assert index is None or len(index) == len(x), "an index has the rows of each sequence"
    batch, heads, n, width = values.shape
    width_block = triton.next_power_of_2(width)
    head_block = min(triton.next_power_of_2(heads), max(1, VALUES // width_block))
    places = target if index is None else index.contiguous()
    with torch.cuda.device_of(x):
        _write[(n, batch, triton.cdiv(heads, head_block))](
            target, places, values, *target.stride()[:3], *values.stride()[:3], n, heads,
            width, head_block, width_block, index is not None,
            num_warps=warps(head_block * width_block),
        )  # fmt: skip
    return x


ROW_KERNELS = {
    "drift": drift, "selection": select, "gather": gather, "branches": add_branches, "write": write,
}  # fmt: skip


def warps(elements: int) -> int:
    """Warps of a program that holds so many numbers."""
    return max(1, min(8, elements // 512))


@triton.jit
def values_of_program(head_block: tl.constexpr, width_block: tl.constexpr):
    """Row and sequence of a program, its heads [heads, 1] and their values [1, width]."""
    row, sequence = tl.program_id(0).to(tl.int64), tl.program_id(1).to(tl.int64)
    head = (tl.program_id(2) * head_block + tl.arange(0, head_block))[:, None]
    return row, sequence, head, tl.arange(0, width_block)[None, :]


@triton.jit
def _drift(
    new, old, out, new_batch, new_row, new_head, old_batch, old_row, old_head, n, least,
    width: tl.constexpr, inner: tl.constexpr, block: tl.constexpr, replace: tl.constexpr,
):  # fmt: skip
    row, sequence = tl.program_id(0).to(tl.int64), tl.program_id(1).to(tl.int64)
    at = tl.arange(0, block)
    inside, head, place = at < width, at // inner, at % inner
    source = new + sequence * new_batch + row * new_row + head * new_head + place
    found = tl.load(source, mask=inside, other=0.0)
    target = old + sequence * old_batch + row * old_row + head * old_head + place
    x, y = found.to(tl.float32), tl.load(target, mask=inside, other=0.0).to(tl.float32)
    x /= tl.maximum(tl.sqrt(tl.sum(x * x, 0)), 1e-12)
    y /= tl.maximum(tl.sqrt(tl.sum(y * y, 0)), 1e-12)
    moved = tl.sum((x - y) * (x - y), 0) / 2
    tl.store(out + sequence * n + row, tl.where(moved < least, 0.0, moved))
    if replace:  # all of the row has been read
        tl.store(target, found, mask=inside)


@triton.jit(do_not_specialize=["n", "count", "start"])
def _select(drifts, rows, places, n, count, start, block: tl.constexpr):
    sequence, at = tl.program_id(0).to(tl.int64), tl.arange(0, block)
    inside = at < n
    found = tl.load(drifts + sequence * n + at, mask=inside, other=0.0)
    # Floats that are not negative are ordered as their bits are.
    bits = tl.where(inside, found.to(tl.int32, bitcast=True) & 0x7FFFFFFF, -1)
    least = count * 0
    for i in range(31):  # the largest number that at least `count` rows reach, bit by bit
        tried = least | (1 << (30 - i))
        least = tl.where(tl.sum((bits >= tried).to(tl.int32), 0) >= count, tried, least)
    above, equal = bits > least, (bits == least).to(tl.int32)
    left = count - tl.sum(above.to(tl.int32), 0)
    chosen = above | ((equal > 0) & (tl.cumsum(equal, 0) <= left))
    target = sequence * count + tl.cumsum(chosen.to(tl.int32), 0) - 1
    tl.store(rows + target, (at + start).to(tl.int64), mask=chosen)
    tl.store(places + target, at.to(tl.int64), mask=chosen)


@triton.jit(do_not_specialize=["n"])
def _gather(
    x, rows, terms, out, x_batch, x_row, n, width: tl.constexpr, block: tl.constexpr,
    adds: tl.constexpr,
):  # fmt: skip
    row, sequence = tl.program_id(0).to(tl.int64), tl.program_id(1).to(tl.int64)
    at = tl.program_id(2) * block + tl.arange(0, block)
    inside, target = at < width, (sequence * n + row) * width + at
    place = tl.load(rows + sequence * n + row)
    found = tl.load(x + sequence * x_batch + place * x_row + at, mask=inside)
    if adds:
        term = tl.load(terms + target, mask=inside).to(tl.float32)
        found = (found.to(tl.float32) + term).to(out.dtype.element_ty)
    tl.store(out + target, found, mask=inside)


@triton.jit(do_not_specialize=["n", "count"])
def _add_branches(
    h, rows, attn, ffn, stored, out, h_batch, h_row, stored_batch, stored_row, n, count,
    width: tl.constexpr, count_block: tl.constexpr, block: tl.constexpr,
):  # fmt: skip
    row, sequence = tl.program_id(0).to(tl.int64), tl.program_id(1).to(tl.int64)
    at, place = tl.program_id(2) * block + tl.arange(0, block), tl.arange(0, count_block)
    chosen = tl.load(rows + sequence * count + place, mask=place < count, other=-1)
    fresh = tl.max(tl.where(chosen == row, place, -1), 0)  # its place among the computed rows
    inside = at < width
    new, old = inside & (fresh >= 0), inside & (fresh < 0)
    source = (sequence * count + fresh) * width + at
    x = tl.load(attn + source, mask=new, other=0.0)
    y = tl.load(ffn + source, mask=new, other=0.0)
    total = tl.load(h + sequence * h_batch + row * h_row + at, mask=inside, other=0.0)
    target = stored + sequence * stored_batch + row * stored_row + at
    number = out.dtype.element_ty
    x = (x.to(tl.float32) + y.to(tl.float32)).to(number)
    tl.store(target, x, mask=new)
    x = tl.where(fresh >= 0, x, tl.load(target, mask=old, other=0.0))
    total = (total.to(tl.float32) + x.to(tl.float32)).to(number)
    tl.store(out + (sequence * n + row) * width + at, total, mask=inside)


@triton.jit(do_not_specialize=["n", "heads"])
def _write(
    x, places, values, x_batch, x_head, x_row, value_batch, value_head, value_row, n, heads,
    width: tl.constexpr, head_block: tl.constexpr, width_block: tl.constexpr,
    indexed: tl.constexpr,
):  # fmt: skip
    row, sequence, head, at = values_of_program(head_block, width_block)
    inside = (head < heads) & (at < width)
    source = values + sequence * value_batch + head * value_head + row * value_row + at
    found = tl.load(source, mask=inside)
    place = row
    if indexed:
        place = tl.load(places + sequence * n + row)
    tl.store(x + sequence * x_batch + head * x_head + place * x_row + at, found, mask=inside)
