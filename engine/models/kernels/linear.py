"""Linear layers whose products torch or oneDNN computes, whichever is faster on this machine."""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar
from types import MappingProxyType
from typing import Any, ClassVar, TypeVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from engine.models.kernels.choice import LAYOUTS, TORCH, Kernels

T = TypeVar("T")

ROW_MULTIPLE, MAX_PADDED_ROWS = 8, 128  # oneDNN compiles a kernel (1 to 4 ms) for each row count
FEW_ROWS = 32  # of a batch, up to which a GPU may use fused kernels for attention and SwiGLU
MAX_COPIED_BYTES = 4 << 20  # projections with larger weights have no copies
AVAILABLE = torch.backends.mkldnn.is_available() and (
    torch.backends.cpu.get_cpu_capability() in ("AVX2", "AVX512")
)
PAD_ROWS = ContextVar("PAD_ROWS", default=True)  # False while the same row counts repeat
ONEDNN_LINEAR = torch.ops.mkldnn._linear_pointwise if AVAILABLE else None
# bfloat16 needs instructions that processors with AVX2 alone lack.
BFLOAT16 = AVAILABLE and torch.ops.mkldnn._is_mkldnn_bf16_supported()
ONEDNN_DTYPES = (torch.float32, *((torch.bfloat16,) if BFLOAT16 else ()))


def weight_stamp(weight: Tensor) -> tuple[int, int]:
    """Address and version of a weight, which differ once it was replaced or changed in place.

    Inference tensors have no version, so in-place changes of them are not seen, nor are those made
    through `weight.data`.
    """
    try:
        return weight.data_ptr(), weight._version
    except RuntimeError:
        return weight.data_ptr(), -1


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


def linear(x: Tensor, weight: Tensor, routine: str) -> Tensor:
    """Product of rows [..., D] and `weight` [E, D], [..., E], by `torch` or `onednn`."""
    if routine == TORCH:
        return F.linear(x, weight)
    return onednn_linear(x, weight, None, pads_rows(x))


def swiglu(x: Tensor, weight: Tensor, routine: str, kernels: Kernels) -> Tensor:
    """SiLU(gate(x)) * up(x) of rows [..., D] with `weight` [2 E, D], gate over up; [..., E]."""
    if routine == TORCH:
        fused = kernels.fused.get("swiglu")
        if fused is not None and x.numel() <= FEW_ROWS * x.shape[-1]:
            return fused(x, weight)
        return kernels.fused.get("gate", gated)(F.linear(x, weight))
    gate, up = weight.chunk(2)
    return onednn_swiglu(x, gate, up, pads_rows(x))


def gated(x: Tensor) -> Tensor:
    """SiLU(gate) * up of rows [..., 2 E] with gate before up, [..., E]; overwrites the gate."""
    gate, up = x.chunk(2, -1)
    return F.silu(gate, inplace=True).mul_(up)


def chosen_routine(
    kernels: Kernels, operation: str, x: Tensor, outputs: int, copies: bool = False
) -> str:
    """The routine of an operation for rows `x` [..., D] with `outputs` outputs.

    `copies`: whether weights may be kept in another layout too.
    """
    if not supports_onednn(x.dtype, x.device):
        return TORCH
    inner = x.shape[-1]
    return kernels.routine(operation, x.dtype, x.numel() // inner, inner, outputs, copies=copies)


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


def supports_onednn(dtype: torch.dtype, device: torch.device) -> bool:
    """Whether oneDNN can multiply tensors of a number format on a device."""
    return ONEDNN_LINEAR is not None and device.type == "cpu" and dtype in ONEDNN_DTYPES


def transposed(weight: Tensor) -> Tensor:
    """A copy of `weight` [E, D] whose memory is ordered as [D, E]; its shape stays.

    With 32 or 48 rows, torch multiplies by it in 10 to 30 % less time on an Intel Xeon with AMX.
    """
    return weight.t().contiguous().t()


def packed(weight: Tensor) -> Tensor:
    """A copy of `weight` [E, D] in oneDNN's own layout."""
    copy: Tensor = torch.ops.mkldnn._reorder_linear_weight(weight.clone(), None)
    return copy


OF_TORCH = TORCH, "transposed"  # routines that multiply by torch's own function
COPIES = MappingProxyType(dict(zip(LAYOUTS, (transposed, packed), strict=True)))


class RoutineLinear(nn.Linear):
    """nn.Linear whose product is computed by the routine that `kernels` chooses.

    Without measured times that is torch's own. Some routines multiply a copy of small weights in
    another layout, see COPIES.

    A copy is made again at the next use after `load_state_dict`, an in-place operation or a new
    tensor has changed the parameter. torch does not track in-place operations on `weight.data`;
    write under `torch.no_grad()` instead.
    """

    operation: ClassVar[str] = "linear"

    def __init__(self, d_in: int, d_out: int, bias: bool = False) -> None:
        super().__init__(d_in, d_out, bias)
        self.kernels = Kernels()
        self.offloaded = False  # the weights are in memory during a call only
        self._copies: dict[tuple[str, int, int], tuple[Tensor, Tensor | None]] = {}
        self._copies_stamp: tuple[int, int, int] | None = None
        self._copies_source: list[Tensor] = []

    def routine(self, x: Tensor, outputs: int) -> str:
        """The routine for a product of `x` with this many outputs."""
        small = self.in_features * outputs * x.element_size() <= MAX_COPIED_BYTES
        return chosen_routine(
            self.kernels, self.operation, x, outputs, small and not self.offloaded
        )

    def routine_slice(self, routine: str, start: int, stop: int) -> tuple[Tensor, Tensor | None]:
        """`weight_slice` in the layout that a routine multiplies."""
        if routine not in COPIES:
            return self.weight_slice(start, stop)
        stamp = self._stamp()
        if stamp != self._copies_stamp:
            self._drop_copies()
        elif (found := self._copies.get((routine, start, stop))) is not None:
            return found
        weight, bias = self.weight_slice(start, stop)
        weight = COPIES[routine](weight)
        self._copies[routine, start, stop], self._copies_stamp = (weight, bias), stamp
        # Holding the storage keeps a later tensor from getting the same address.
        self._copies_source = [p.detach() for p in (self.weight, self.bias) if p is not None]
        return weight, bias

    def weight_slice(self, start: int, stop: int) -> tuple[Tensor, Tensor | None]:
        """Weight and bias (None if there is none) of the outputs `start` to `stop`."""
        if stop - start == self.out_features:
            return self.weight, self.bias
        return self.weight[start:stop], None if self.bias is None else self.bias[start:stop]

    def _stamp(self) -> tuple[int, int, int]:
        """Address and version of the weight, and address of the bias."""
        owned = self._parameters  # faster than attributes, which go through nn.Module.__getattr__
        weight, bias = owned["weight"], owned["bias"]
        assert weight is not None
        return *weight_stamp(weight), 0 if bias is None else bias.data_ptr()

    def _drop_copies(self) -> None:
        self._copies.clear()
        self._copies_source.clear()

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Any:
        self._drop_copies()
        return super()._apply(fn, recurse)


class FusedLinear(RoutineLinear):
    """One projection, or several of the same input of which any contiguous outputs are computed."""

    def forward(self, input: Tensor, start: int = 0, stop: int | None = None) -> Tensor:
        """Outputs `start` to `stop` (None: the last) of rows [..., D], [..., stop - start]."""
        stop = self.out_features if stop is None else stop
        return self.compute(self.routine(input, stop - start), input, start, stop)

    def compute(self, routine: str, x: Tensor, start: int = 0, stop: int | None = None) -> Tensor:
        """`forward` by a routine of the operation `linear`."""
        stop = self.out_features if stop is None else stop
        weight, bias = self.routine_slice(routine, start, stop)
        if routine in OF_TORCH:
            return F.linear(x, weight, bias)
        return onednn_linear(x, weight, bias, pads_rows(x))


class SwiGLU(RoutineLinear):
    """Gate and up projections of a feed-forward network: SiLU(gate(x)) * up(x)."""

    operation: ClassVar[str] = "gated"

    def __init__(self, d_in: int, d_out: int) -> None:
        super().__init__(d_in, 2 * d_out)

    def forward(self, input: Tensor) -> Tensor:
        """[..., D] -> [..., E]."""
        return self.compute(self.routine(input, self.out_features // 2), input)

    def compute(self, routine: str, x: Tensor) -> Tensor:
        """`forward` by a routine of the operation `gated`."""
        both = self.out_features
        if routine in OF_TORCH:
            return swiglu(x, self.routine_slice(routine, 0, both)[0], TORCH, self.kernels)
        parts = ((0, both // 2), (both // 2, both))
        gate, up = (self.routine_slice(routine, *part)[0] for part in parts)
        return onednn_swiglu(x, gate, up, pads_rows(x))
