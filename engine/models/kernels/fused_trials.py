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
from engine.models.base import FEW_ROWS, ModelAdapter
from engine.models.kernels.linear import FEW_PRODUCT_ROWS
from engine.models.ops import Rotary, add_branches, drift, rms_norm, top_drift

ROWS = (32, 512)  # of the operands on which a kernel is tried
POSITIONS = 1024  # among which rows are chosen
Operation = Callable[..., Any]
Trial = tuple[Operation, tuple[Any, ...]]


def trials(adapter: ModelAdapter, name: str) -> Iterator[Trial]:
    """Torch's operation and its operands, of the sizes of a model, for each of ROWS.

    A kernel for few rows is tried on the first of ROWS alone. KeyError for an unknown name.
    """
    few = {"attention": FEW_ROWS, "swiglu": FEW_PRODUCT_ROWS}
    for rows in ROWS:
        if rows <= few.get(name, rows):
            yield _TRIALS[name](_Drawn(adapter), rows)


class _Drawn:
    """Random operands for a model."""

    def __init__(self, adapter: ModelAdapter) -> None:
        self.info, self.device, self.dtype = adapter.info, adapter.device, adapter.dtype
        self._draw = torch.Generator(self.device).manual_seed(1)

    def __call__(self, *shape: int) -> Tensor:
        """Normally distributed numbers, in the format of the model."""
        return torch.randn(shape, dtype=self.dtype, device=self.device, generator=self._draw)

    def places(self, rows: int) -> Tensor:
        """So many of POSITIONS, ascending, [1, rows]."""
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
    return drift, (old + drawn(*old.shape) / 16, old)


def _selection(drawn: _Drawn, rows: int) -> Trial:
    return top_drift, (drawn(1, POSITIONS).float().abs(), rows, 1)


def _gather(drawn: _Drawn, rows: int) -> Trial:
    width = drawn.info.d_model
    return take_sum, (drawn(1, POSITIONS, width), drawn.places(rows), drawn(1, rows, width))


def _write(drawn: _Drawn, rows: int) -> Trial:
    new = drawn.heads(rows).transpose(1, 2).contiguous().transpose(1, 2)
    return written, (drawn.heads(POSITIONS), drawn.places(rows), new, 2)


def _branches(drawn: _Drawn, rows: int) -> Trial:
    h, *stored = (drawn(1, POSITIONS, drawn.info.d_model) for _ in range(3))
    attn, ffn = (drawn(1, rows, drawn.info.d_model) for _ in range(2))
    return add_branches, (h, drawn.places(rows), attn, ffn, *stored)


_TRIALS: dict[str, Callable[[_Drawn, int], Trial]] = {
    "norm": _norm, "rotation": _rotation, "gate": _gate, "swiglu": _swiglu,
    "attention": _attention, "drift": _drift, "selection": _selection, "gather": _gather,
    "write": _write, "branches": _branches,
}  # fmt: skip


def rotated(rotary: Rotary, x: Tensor, table: Tensor, rows: Rows) -> Tensor:
    """`rotary`, whose `table` a kernel reads."""
    return rotary(x, rows)


def gated(x: Tensor) -> Tensor:
    """`linear.gated`, which overwrites its operand, with one that stays."""
    gate, up = x.chunk(2, -1)
    return F.silu(gate).mul_(up)


def gated_product(x: Tensor, weight: Tensor) -> Tensor:
    """`linear.swiglu` by torch."""
    return gated(F.linear(x, weight))


def attend(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """`attention` of all keys."""
    return attention(q, k, v, None)


def take_sum(x: Tensor, rows: Tensor, added: Tensor) -> Tensor:
    """`rows.take` and a sum."""
    return take(x, rows) + added


def written(x: Tensor, rows: Rows, values: Tensor, dim: int) -> Tensor:
    """`rows.put`, which returns nothing, with its result."""
    put(x, rows, values, dim)
    return x
