"""Projection: rows times a matrix of weights, on an x86 processor by oneDNN."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

LEAST = 1 << 19  # multiplications from which oneDNN, which takes 10 us a call, is the faster
STRIDE, FEW = 8, 128  # oneDNN writes a program, in 1 to 2 ms, for each number of rows it meets
SMALL = 4 << 20  # bytes of a matrix up to which a copy in the order of oneDNN's kernels is kept
FORMATS = (torch.float32, torch.bfloat16)
CAPABLE = torch.backends.mkldnn.is_available() and (
    torch.backends.cpu.get_cpu_capability() in ("AVX2", "AVX512")
)
ONEDNN = torch.ops.mkldnn._linear_pointwise if CAPABLE else None


def multiply(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """Rows [..., D] by `weight` [E, D] with oneDNN, [..., E].

    Zeros fill up a STRIDE where rows are few, as where every step has another number of them: so
    a run waits for, and keeps, an eighth of the programs.
    """
    assert ONEDNN is not None
    rows = x.numel() // x.shape[-1]
    if rows > FEW or not rows % STRIDE:
        return ONEDNN(x, weight, bias, "none", [], "")
    filled = F.pad(x.reshape(rows, -1), (0, 0, 0, -rows % STRIDE))
    return ONEDNN(filled, weight, bias, "none", [], "")[:rows].view(*x.shape[:-1], -1)


class Projection(nn.Linear):
    """One projection, or several of one input, of which a run of outputs is computed at a time.

    torch multiplies float32 by MKL, which leaves half of an AMD processor's speed unused; oneDNN
    does not. The weights stay as they are once the module has been called.
    """

    def __init__(self, d_in: int, d_out: int, bias: bool = False) -> None:
        super().__init__(d_in, d_out, bias)
        self.fetched = False  # the weights are here for the time of a call only
        self._packed: dict[tuple[int, int], Tensor] = {}

    def forward(self, input: Tensor, lo: int = 0, hi: int | None = None) -> Tensor:
        """[..., D] -> [..., hi - lo]: the outputs lo to hi."""
        hi = self.out_features if hi is None else hi
        bias = None if self.bias is None else self.bias[lo:hi]
        if (
            ONEDNN is None
            or input.numel() * (hi - lo) < LEAST
            or input.device.type != "cpu"
            or input.dtype not in FORMATS
        ):
            return F.linear(input, self._run(lo, hi), bias)
        weight = self._packed.get((lo, hi))
        if weight is None:
            weight = self._run(lo, hi)
            if not self.fetched and weight.nbytes <= SMALL:
                weight = torch.ops.mkldnn._reorder_linear_weight(weight.clone(), None)
                self._packed[lo, hi] = weight
        return multiply(input, weight, bias)

    def _run(self, lo: int, hi: int) -> Tensor:
        """The weights of the outputs lo to hi."""
        weight = self.weight
        return weight if hi - lo == len(weight) else weight[lo:hi]

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Any:
        self._packed.clear()
        return super()._apply(fn, recurse)
