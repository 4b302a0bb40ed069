"""Projection: rows times a matrix of weights, on an x86 processor by oneDNN."""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar
from typing import Any, TypeVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

T = TypeVar("T")

LEAST = 1 << 19  # multiplications from which oneDNN, which takes 10 us a call, is the faster
STRIDE, FEW = 8, 128  # oneDNN writes a program, in 1 to 4 ms, for each number of rows it meets
SMALL = 4 << 20  # bytes of a matrix up to which a copy in the order of oneDNN's kernels is kept
FORMATS = (torch.float32, torch.bfloat16)
CAPABLE = torch.backends.mkldnn.is_available() and (
    torch.backends.cpu.get_cpu_capability() in ("AVX2", "AVX512")
)
RECURS = ContextVar("RECURS", default=False)  # whether what is done now is done often
ONEDNN = torch.ops.mkldnn._linear_pointwise if CAPABLE else None


def multiply(x: Tensor, weight: Tensor, bias: Tensor | None = None, fill: bool = False) -> Tensor:
    """Rows [..., D] by `weight` [E, D] with oneDNN, [..., E]; `fill`: zeros fill up a STRIDE."""
    assert ONEDNN is not None
    if fill:
        return _in_strides(lambda rows: multiply(rows, weight, bias), x)
    return ONEDNN(x, weight, bias, "none", [], "")


def multiply_gated(x: Tensor, gate: Tensor, up: Tensor, fill: bool = False) -> Tensor:
    """SiLU of rows [..., D] by `gate` [E, D], times the rows by `up` [E, D]; [..., E].

    oneDNN does both to the products while they are in the processor's registers.
    """
    assert ONEDNN is not None
    if fill:
        return _in_strides(lambda rows: multiply_gated(rows, gate, up), x)
    return ONEDNN.binary(x, ONEDNN(x, gate, None, "swish", [], ""), up, None, "mul")


def recurring(call: Callable[[], T]) -> T:
    """What `call` gives, whose numbers of rows recur, so that none of them is filled up."""
    token = RECURS.set(True)
    try:
        return call()
    finally:
        RECURS.reset(token)


def uneven(rows: int) -> bool:
    """Whether so many rows are few and fill no STRIDE."""
    return rows <= FEW and rows % STRIDE != 0


def _in_strides(call: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
    """What `call` makes of the rows of `x` [..., D] when zeros fill up a STRIDE.

    Every step may have another number of them: so a run waits for, and keeps, an eighth of the
    programs, of half a megabyte each.
    """
    rows = x.numel() // x.shape[-1]
    filled = F.pad(x.reshape(rows, -1), (0, 0, 0, -rows % STRIDE))
    return call(filled)[:rows].view(*x.shape[:-1], -1)


class Weights(nn.Linear):
    """The weights of a module that multiplies by them or by a run of them.

    torch multiplies float32 by MKL, which leaves up to half of an AMD processor's speed unused;
    oneDNN does not. They stay as they are once the module has been called.
    """

    def __init__(self, d_in: int, d_out: int, bias: bool = False) -> None:
        super().__init__(d_in, d_out, bias)
        self.fetched = False  # the weights are here for the time of a call only
        self._packed: dict[tuple[int, int], tuple[Tensor, Tensor | None]] = {}

    def onednn_pays(self, x: Tensor, outputs: int) -> bool:
        """Whether a product of `x` with so many outputs is faster by oneDNN."""
        return (
            ONEDNN is not None and x.numel() * outputs >= LEAST and x.is_cpu and x.dtype in FORMATS
        )

    def fills(self, x: Tensor) -> bool:
        """Whether zeros fill up a STRIDE: not where as many rows recur."""
        return uneven(x.numel() // self.in_features) and not RECURS.get()

    def packed(self, lo: int, hi: int) -> tuple[Tensor, Tensor | None]:
        """`run`, the weights where they are small in the order that oneDNN's kernels read."""
        known = self._packed.get((lo, hi))
        if known is not None:
            return known
        weight, bias = self.run(lo, hi)
        if not self.fetched and weight.nbytes <= SMALL:
            weight = torch.ops.mkldnn._reorder_linear_weight(weight.clone(), None)
            self._packed[lo, hi] = weight, bias
        return weight, bias

    def run(self, lo: int, hi: int) -> tuple[Tensor, Tensor | None]:
        """Weights and, where there is one, bias of the outputs lo to hi."""
        if hi - lo == self.out_features:
            return self.weight, self.bias
        return self.weight[lo:hi], None if self.bias is None else self.bias[lo:hi]

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Any:
        self._packed.clear()
        return super()._apply(fn, recurse)


class Projection(Weights):
    """One projection, or several of one input, of which a run of outputs is computed at a time."""

    def forward(self, input: Tensor, lo: int = 0, hi: int | None = None) -> Tensor:
        """[..., D] -> [..., hi - lo]: the outputs lo to hi."""
        hi = self.out_features if hi is None else hi
        if self.onednn_pays(input, hi - lo):
            return multiply(input, *self.packed(lo, hi), self.fills(input))
        return F.linear(input, *self.run(lo, hi))


class Gated(Weights):
    """Two projections of one input: the first one's outputs through SiLU, times the second's."""

    def __init__(self, d_in: int, d_out: int) -> None:
        super().__init__(d_in, 2 * d_out)

    def forward(self, input: Tensor) -> Tensor:
        """[..., D] -> [..., E]."""
        both = self.out_features
        half = both // 2
        if self.onednn_pays(input, half):
            gate, up = self.packed(0, half)[0], self.packed(half, both)[0]
            return multiply_gated(input, gate, up, self.fills(input))
        gate, up = F.linear(input, self.weight).chunk(2, -1)
        return F.silu(gate, inplace=True).mul_(up)
