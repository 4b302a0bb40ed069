"""Linear layers that multiply with oneDNN on x86 CPUs, where it is faster than torch's default."""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar
from typing import Any, TypeVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

T = TypeVar("T")

MIN_MULTIPLICATIONS = 1 << 19  # smaller products do not repay oneDNN's overhead of 10 us a call
ROW_MULTIPLE, MAX_PADDED_ROWS = 8, 128  # oneDNN compiles a kernel (1 to 4 ms) for each row count
MAX_PACKED_BYTES = 4 << 20  # larger weights are multiplied as they are, without a packed copy
ONEDNN_DTYPES = (torch.float32, torch.bfloat16)
AVAILABLE = torch.backends.mkldnn.is_available() and (
    torch.backends.cpu.get_cpu_capability() in ("AVX2", "AVX512")
)
PAD_ROWS = ContextVar("PAD_ROWS", default=True)  # False while the same row counts repeat
ONEDNN_LINEAR = torch.ops.mkldnn._linear_pointwise if AVAILABLE else None


def onednn_linear(
    x: Tensor, weight: Tensor, bias: Tensor | None = None, pad_rows: bool = False
) -> Tensor:
    """Product of rows [..., D] and `weight` [E, D] with oneDNN, [..., E].

    `pad_rows` adds zero rows up to a multiple of ROW_MULTIPLE.
    """
    assert ONEDNN_LINEAR is not None
    if pad_rows:
        return _with_padded_rows(lambda rows: onednn_linear(rows, weight, bias), x)
    return ONEDNN_LINEAR(x, weight, bias, "none", [], "")


def onednn_swiglu(x: Tensor, gate: Tensor, up: Tensor, pad_rows: bool = False) -> Tensor:
    """SiLU(x @ gate.T) * (x @ up.T) of rows [..., D] with oneDNN, [..., E].

    oneDNN fuses the activation and the multiplication into the two products.
    """
    assert ONEDNN_LINEAR is not None
    if pad_rows:
        return _with_padded_rows(lambda rows: onednn_swiglu(rows, gate, up), x)
    return ONEDNN_LINEAR.binary(x, ONEDNN_LINEAR(x, gate, None, "swish", [], ""), up, None, "mul")


def linear(x: Tensor, weight: Tensor) -> Tensor:
    """Product of rows [..., D] and `weight` [E, D], [..., E], with oneDNN where that is faster."""
    if uses_onednn(x, len(weight)):
        return onednn_linear(x, weight, None, pads_rows(x))
    return F.linear(x, weight)


def swiglu(x: Tensor, weight: Tensor) -> Tensor:
    """SiLU(gate(x)) * up(x) of rows [..., D] with `weight` [2 E, D], gate over up; [..., E]."""
    half = len(weight) // 2
    if uses_onednn(x, half):
        return onednn_swiglu(x, weight[:half], weight[half:], pads_rows(x))
    gate, up = F.linear(x, weight).chunk(2, -1)
    return F.silu(gate, inplace=True).mul_(up)


def uses_onednn(x: Tensor, outputs: int) -> bool:
    """Whether oneDNN is faster for a product of `x` with this many outputs."""
    return (
        ONEDNN_LINEAR is not None
        and x.numel() * outputs >= MIN_MULTIPLICATIONS
        and x.is_cpu
        and x.dtype in ONEDNN_DTYPES
    )


def pads_rows(x: Tensor) -> bool:
    """Whether zero rows are added to rows `x` [..., D] before a product with oneDNN."""
    return needs_padding(x.numel() // x.shape[-1]) and PAD_ROWS.get()


def without_row_padding(call: Callable[[], T]) -> T:
    """The result of `call`, computed without row padding: its row counts repeat."""
    token = PAD_ROWS.set(False)
    try:
        return call()
    finally:
        PAD_ROWS.reset(token)


def needs_padding(rows: int) -> bool:
    """Whether a row count is small and not a multiple of ROW_MULTIPLE."""
    return rows <= MAX_PADDED_ROWS and rows % ROW_MULTIPLE != 0


def _with_padded_rows(call: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
    """`call` on the rows of `x` [..., D] and zero rows up to a multiple of ROW_MULTIPLE.

    Every step may have another row count. Padding leaves an eighth of the kernels to compile and
    to keep, of half a megabyte each.
    """
    rows = x.numel() // x.shape[-1]
    padded = F.pad(x.reshape(rows, -1), (0, 0, 0, -rows % ROW_MULTIPLE))
    return call(padded)[:rows].view(*x.shape[:-1], -1)


class PackedLinear(nn.Linear):
    """nn.Linear that keeps small weights in oneDNN's own layout too ("packed").

    torch multiplies float32 with MKL, which reaches as little as half of an AMD CPU's speed.

    A packed copy is dropped when `load_state_dict`, an in-place operation or a new tensor changes
    the parameter. torch does not track in-place operations on `weight.data`; write under
    `torch.no_grad()` instead.
    """

    def __init__(self, d_in: int, d_out: int, bias: bool = False) -> None:
        super().__init__(d_in, d_out, bias)
        self.offloaded = False  # the weights are in memory during a call only
        self._packed: dict[tuple[int, int], tuple[Tensor, Tensor | None]] = {}
        self._packed_stamp: tuple[int, int, int] | None = None
        self._packed_source: list[Tensor] = []

    def packed_slice(self, start: int, stop: int) -> tuple[Tensor, Tensor | None]:
        """`weight_slice`, the weight packed if it is small."""
        stamp = self._stamp()
        if stamp != self._packed_stamp:
            self._drop_packed()
        elif (found := self._packed.get((start, stop))) is not None:
            return found
        weight, bias = self.weight_slice(start, stop)
        if not self.offloaded and weight.nbytes <= MAX_PACKED_BYTES:
            weight = torch.ops.mkldnn._reorder_linear_weight(weight.clone(), None)
            self._packed[start, stop], self._packed_stamp = (weight, bias), stamp
            # Holding the storage keeps a later tensor from getting the same address.
            self._packed_source = [p.detach() for p in (self.weight, self.bias) if p is not None]
        return weight, bias

    def weight_slice(self, start: int, stop: int) -> tuple[Tensor, Tensor | None]:
        """Weight and bias (None if there is none) of the outputs `start` to `stop`."""
        if stop - start == self.out_features:
            return self.weight, self.bias
        return self.weight[start:stop], None if self.bias is None else self.bias[start:stop]

    def _stamp(self) -> tuple[int, int, int]:
        """Address and version of the weight, and address of the bias.

        Inference tensors have no version, so in-place changes of them are not seen.
        """
        owned = self._parameters  # faster than attributes, which go through nn.Module.__getattr__
        weight, bias = owned["weight"], owned["bias"]
        assert weight is not None
        try:
            version = weight._version
        except RuntimeError:
            version = -1
        return weight.data_ptr(), version, 0 if bias is None else bias.data_ptr()

    def _drop_packed(self) -> None:
        self._packed.clear()
        self._packed_source.clear()

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Any:
        self._drop_packed()
        return super()._apply(fn, recurse)


class FusedLinear(PackedLinear):
    """One projection, or several of the same input of which any contiguous outputs are computed."""

    def forward(self, input: Tensor, start: int = 0, stop: int | None = None) -> Tensor:
        """Outputs `start` to `stop` (None: the last) of rows [..., D], [..., stop - start]."""
        stop = self.out_features if stop is None else stop
        if uses_onednn(input, stop - start):
            return onednn_linear(input, *self.packed_slice(start, stop), pads_rows(input))
        return F.linear(input, *self.weight_slice(start, stop))


class SwiGLU(PackedLinear):
    """Gate and up projections of a feed-forward network: SiLU(gate(x)) * up(x)."""

    def __init__(self, d_in: int, d_out: int) -> None:
        super().__init__(d_in, 2 * d_out)

    def forward(self, input: Tensor) -> Tensor:
        """[..., D] -> [..., E]."""
        both = self.out_features
        half = both // 2
        if uses_onednn(input, half):
            gate, up = self.packed_slice(0, half)[0], self.packed_slice(half, both)[0]
            return onednn_swiglu(input, gate, up, pads_rows(input))
        return swiglu(input, self.weight)
