"""What fused kernels replace, as torch computes it, and operands to try them on."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from engine.core.rows import Rows, put, take
from engine.models.attention import attention
from engine.models.base import ModelAdapter
from engine.models.kernels.linear import FEW_ROWS
from engine.models.ops import Rotary, add_branches, drift, rms_norm, top_drift

ROWS = (FEW_ROWS, 512)  # of the operands on which a kernel is tried
POSITIONS = 1024  # among which rows are chosen
Operation = Callable[..., Any]
Trial = tuple[Operation, tuple[Any, ...]]


def trials(adapter: ModelAdapter, name: str) -> Iterator[Trial]:
    """Torch's operation and its operands, of the sizes of a model, for each of ROWS.

    A kernel that is used for few rows alone is tried on the first of ROWS. KeyError for an unknown
    name.
    """
    for rows in ROWS[:1] if name in ("attention", "swiglu") else ROWS:
        for trial in _TRIALS[name]:
            yield trial(_Drawn(adapter), rows)


class _Drawn:
    """Random operands for a model."""

    def __init__(self, adapter: ModelAdapter) -> None:
        self.info, self.device, self.dtype = adapter.info, adapter.device, adapter.dtype
        self._draw = torch.Generator(self.device).manual_seed(1)

    def __call__(self, *shape: int) -> Tensor:
        """Normally distributed numbers, in the format of the model."""
        return torch.randn(shape, dtype=self.dtype, device=self.device, generator=self._draw)

    def places(self, rows: int) -> Tensor:
        """`rows` different positions below POSITIONS, ascending, [1, rows]."""
        order = torch.randperm(POSITIONS, device=self.device, generator=self._draw)
        return order[:rows].sort().values[None]

    def heads(self, rows: int) -> Tensor:
        """Keys or values as they are stored, [1, Hkv, rows, dh]."""
        return self(1, self.info.n_kv_heads, rows, self.info.head_dim)


def _norm(drawn: _Drawn, rows: int) -> Trial:
    width = drawn.info.d_model
    return rms_norm, (drawn(1, rows, width), drawn(width), drawn.info.norm_eps)


def _rotation(drawn: _Drawn, rows: int) -> Trial:
    info = drawn.info
    rotary = Rotary(POSITIONS, info.rotary_dim, info.rope_theta, drawn.dtype, drawn.device)
    heads = info.n_heads + info.n_kv_heads
    projected = drawn(1, rows, heads + info.n_kv_heads, info.head_dim)
    operands = projected[:, :, :heads, : info.rotary_dim], rotary.table, drawn.places(rows)
    return partial(rotated, rotary), operands


def _gate(drawn: _Drawn, rows: int) -> Trial:
    return gated, (drawn(1, rows, 2 * drawn.info.ffn),)


def _swiglu(drawn: _Drawn, rows: int) -> Trial:
    width, inner = drawn.info.d_model, drawn.info.ffn
    return gated_product, (drawn(1, rows, width), drawn(2 * inner, width).div_(width**0.5))


def _attention(drawn: _Drawn, rows: int) -> Trial:
    q = drawn(1, rows, drawn.info.n_heads, drawn.info.head_dim)
    return attend, (q, drawn.heads(POSITIONS), drawn.heads(POSITIONS))


def _drift(drawn: _Drawn, rows: int) -> Trial:
    old = drawn.heads(rows).transpose(1, 2)
    return replaced, (old + drawn(*old.shape) / 16, old, True)


def _selection(drawn: _Drawn, rows: int) -> Trial:
    return top_drift, (drawn(1, POSITIONS).float().abs(), rows, 1)


def _gather(drawn: _Drawn, rows: int) -> Trial:
    return take, (drawn(1, POSITIONS, drawn.info.d_model), drawn.places(rows))


def _gather_sum(drawn: _Drawn, rows: int) -> Trial:
    width = drawn.info.d_model
    return take_sum, (drawn(1, POSITIONS, width), drawn.places(rows), drawn(1, rows, width))


def _write(drawn: _Drawn, rows: int) -> Trial:
    new = drawn.heads(rows).transpose(1, 2).contiguous().transpose(1, 2)
    return written, (drawn.heads(POSITIONS), drawn.places(rows), new, 2)


def _branches(drawn: _Drawn, rows: int) -> Trial:
    h, stored = (drawn(1, POSITIONS, drawn.info.d_model) for _ in range(2))
    attn, ffn = (drawn(1, rows, drawn.info.d_model) for _ in range(2))
    return add_branches, (h, drawn.places(rows), attn, ffn, stored)


_TRIALS: dict[str, tuple[Callable[[_Drawn, int], Trial], ...]] = {
    "norm": (_norm,), "rotation": (_rotation,), "gate": (_gate,), "swiglu": (_swiglu,),
    "attention": (_attention,), "drift": (_drift,), "selection": (_selection,),
    "gather": (_gather, _gather_sum), "write": (_write,), "branches": (_branches,),
}  # fmt: skip


def rotated(rotary: Rotary, x: Tensor, table: Tensor, rows: Rows) -> Tensor:
    """Heads `x` [B, n, H, dh] rotated by torch, which does not need the table of the kernel."""
    return rotary(x, rows)


def gated(x: Tensor) -> Tensor:
    """As `linear.gated` of rows [..., 2 E], without overwriting `x`."""
    gate, up = x.chunk(2, -1)
    return F.silu(gate).mul_(up)


def gated_product(x: Tensor, weight: Tensor) -> Tensor:
    """As `linear.swiglu` of rows [..., D] and `weight` [2 E, D], by torch's operations."""
    return gated(F.linear(x, weight))


def attend(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """`attention` over all keys, [B, n, H * dh]."""
    return attention(q, k, v, None)


def take_sum(x: Tensor, rows: Tensor, added: Tensor) -> Tensor:
    """Rows [B, n] of `x` [B, T, D] plus `added` [B, n, D]."""
    return take(x, rows) + added


def replaced(new: Tensor, old: Tensor, replace: bool) -> Tensor:
    """The drift of rows [B, n, ...]; then the new values are written over the old ones."""
    moved = drift(new, old)
    old.copy_(new)
    return moved


def written(x: Tensor, rows: Rows, values: Tensor, dim: int) -> Tensor:
    """As `rows.put`; returns `x`."""
    put(x, rows, values, dim)
    return x
