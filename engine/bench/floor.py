"""The floor of a run's time: its matrix products alone, recorded in a run and executed again.

The replay multiplies with the run's own weights, so that it reads as many bytes that are in no
cache as the run did; of activations only the shapes are recorded. Attention counts as two
products, QK^T and PV, both written out.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from engine.core.device import synchronized_time
from engine.generate.capture.capturers import Capturer
from engine.models.attention import OWN_ATTENTION, own_attention
from engine.models.kernels.choice import Kernels
from engine.models.kernels.linear import ONEDNN_LINEAR, onednn_linear

ATEN = torch.ops.aten
# Position of the left operand among an operator's arguments; the right one follows it.
LEFT_ARGUMENT = {ATEN.mm: 0, ATEN.bmm: 0, ATEN.matmul: 0, ATEN.addmm: 1, ATEN.baddbmm: 1}
Call = Callable[..., Tensor]
Step = Callable[[], Sequence[Tensor]]


@dataclass(frozen=True)
class Product:
    """A matrix product [batch, rows, inner] x [batch, inner, columns].

    Attributes:
        weight: [columns, inner], the right operand if it is a parameter of the model.
        bias: [columns], added to the result.
        onednn: whether the run multiplies by oneDNN.
        flipped: whether an activation on the right is stored as [batch, columns, inner].
        role: "scores" for QK^T, "sums" for PV (its left operand is the scores), else empty.
    """

    batch: int
    rows: int
    inner: int
    columns: int
    dtype: torch.dtype
    weight: Tensor | None = None
    bias: Tensor | None = None
    onednn: bool = False
    flipped: bool = False
    role: str = ""

    @property
    def flops(self) -> int:
        """FLOPs; a multiply-add counts as two."""
        return 2 * self.batch * self.rows * self.inner * self.columns

    @property
    def bytes_read(self) -> int:
        """Bytes of the right operand: a weight, keys or values."""
        return self.batch * self.inner * self.columns * self.dtype.itemsize

    def buffer_names(self, index: int) -> tuple[str, str, str]:
        """The buffers of the left operand, the right operand and the result.

        All left operands share a buffer, because a run reads what it has just computed from the
        processor's cache. Keys and values have a buffer of their own for each `index`, the
        product's number in its step, as in an activation store.
        """
        left = "scores" if self.role == "sums" else "left"
        return left, f"right {index}", "scores" if self.role == "scores" else "out"

    def buffer_sizes(self, index: int) -> dict[str, int]:
        """Numbers that the product needs in each of its buffers, see `buffer_names`."""
        left, right, out = self.buffer_names(index)
        sizes = {left: self.rows * self.inner, out: self.rows * self.columns}
        if self.weight is None:
            sizes[right] = self.inner * self.columns
        return {name: self.batch * size for name, size in sizes.items()}


class ProductRecorder(TorchDispatchMode):
    """Context manager that records every matrix product executed within it, in order.

    `end_step` closes a step; `steps` holds the products of the closed ones. The right operand of
    a oneDNN product is a weight if it is a parameter of `model`, else an activation.
    """

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self._parameters = {p.untyped_storage().data_ptr() for p in model.parameters()}
        self.steps: list[list[Product]] = []
        self._current: list[Product] = []

    def end_step(self) -> None:
        """Close the current step; the next product belongs to a new one."""
        self.steps.append(self._current)
        self._current = []

    def __torch_dispatch__(
        self,
        func: Any,
        types: Sequence[type],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        """Execute an operator and record it if it multiplies matrices."""
        packet = func.overloadpacket
        if packet is OWN_ATTENTION:
            with self:  # which records its products one by one
                return own_attention(*args)
        out = func(*args, **(kwargs or {}))
        if packet is ONEDNN_LINEAR and func is ONEDNN_LINEAR.binary:
            args = args[0], *args[2:]  # without the tensor that the result is multiplied by
        if packet is ONEDNN_LINEAR and not self._is_weight(args[1]):
            self._current.append(_head_product(*args[:2]))
        elif packet in (ATEN.linear, ONEDNN_LINEAR):
            onednn = packet is ONEDNN_LINEAR
            self._current.append(_linear_product(onednn, out.dtype, *args[:3]))
        elif packet is ATEN.scaled_dot_product_attention:
            self._current += _attention_products(*args[:3])
        elif packet in LEFT_ARGUMENT:
            left, right = args[LEFT_ARGUMENT[packet] :][:2]
            self._current.append(_matmul_product(left, right, out))
        return out

    def watched(self, kernels: Kernels) -> Kernels:
        """`kernels` whose fused products are recorded too; they are no operators of torch."""
        fused = {
            name: partial(self._run_fused, kernel, FUSED[name]) if name in FUSED else kernel
            for name, kernel in kernels.fused.items()
        }
        return Kernels(kernels.times, kernels.others, fused)

    def _run_fused(
        self, kernel: Call, products: Callable[..., Sequence[Product]], *operands: Tensor
    ) -> Tensor:
        self._current += products(*operands)
        return kernel(*operands)

    def _is_weight(self, operand: Tensor) -> bool:
        packed = operand.layout != torch.strided
        return packed or operand.untyped_storage().data_ptr() in self._parameters


def _head_product(x: Tensor, right: Tensor) -> Product:
    """QK^T of one head, whose keys are contiguous, or PV, whose values are transposed."""
    columns, inner = right.shape
    keys = right.stride(-1) == 1
    role = "scores" if keys else "sums"
    return Product(1, len(x), inner, columns, x.dtype, onednn=True, flipped=keys, role=role)


def _linear_product(
    onednn: bool, dtype: torch.dtype, x: Tensor, weight: Tensor, bias: Tensor | None = None
) -> Product:
    columns, inner = weight.shape
    rows = x.numel() // inner
    return Product(1, rows, inner, columns, dtype, weight, bias, onednn)


def _attention_products(q: Tensor, k: Tensor, v: Tensor) -> tuple[Product, Product]:
    """QK^T and PV; the queries of heads that share keys are rows of one product."""
    batch, keys = k.shape[0] * k.shape[1], k.shape[2]
    rows = q[..., 0].numel() // batch
    return (
        Product(batch, rows, q.shape[3], keys, q.dtype, flipped=True, role="scores"),
        Product(batch, rows, keys, v.shape[3], q.dtype, role="sums"),
    )


def _matmul_product(left: Tensor, right: Tensor, out: Tensor) -> Product:
    """`left @ right`; leading dimensions are a batch, unless `right` is a single matrix."""
    inner, columns = right.shape[-2:]
    batch = 1 if right.dim() == 2 else math.prod(out.shape[:-2])
    rows = out.numel() // (batch * columns)
    return Product(batch, rows, inner, columns, left.dtype, flipped=right.stride(-1) != 1)


def _gated_products(x: Tensor, weight: Tensor) -> tuple[Product]:
    return (_linear_product(False, x.dtype, x, weight),)


def _few_row_products(q: Tensor, k: Tensor, v: Tensor) -> tuple[Product, Product]:
    return _attention_products(q.transpose(1, 2), k, v)


# The products that a fused kernel computes, from its operands; see engine.models.kernels.fused.
FUSED: dict[str, Callable[..., Sequence[Product]]] = {
    "swiglu": _gated_products, "attention": _few_row_products,
}  # fmt: skip


class Buffers:
    """Preallocated memory for the activations of `steps`, shared by all of them."""

    def __init__(self, steps: Iterable[Sequence[Product]], device: torch.device) -> None:
        sizes: dict[tuple[str, torch.dtype], int] = {}
        for step in steps:
            for index, product in enumerate(step):
                for name, size in product.buffer_sizes(index).items():
                    key = name, product.dtype
                    sizes[key] = max(size, sizes.get(key, 0))
        generator = torch.Generator(device).manual_seed(0)
        self._memory = {
            key: torch.empty(size, dtype=key[1], device=device).normal_(generator=generator)
            for key, size in sizes.items()
        }
        self._unpacked: dict[int, tuple[Tensor, Tensor]] = {}
        self.device = device

    def call(self, product: Product, index: int, as_run: bool = False) -> Call:
        """A function that executes a product, the `index`-th of its step.

        It uses torch.mm, torch.addmm or torch.bmm and writes into a buffer; with `as_run` it
        uses the routine of the recorded run.
        """
        as_run = as_run and product.onednn
        if product.weight is None:
            return self._activation_call(product, index, as_run)
        left, _, out = product.buffer_names(index)
        x, bias = self._view(product, left, product.rows, product.inner), product.bias
        if as_run:
            return partial(onednn_linear, x, product.weight, bias)
        operands = x, self._strided(product.weight).T
        result = self._view(product, out, product.rows, product.columns)
        if bias is None:
            return partial(torch.mm, *operands, out=result)
        return partial(torch.addmm, bias, *operands, out=result)

    def _activation_call(self, product: Product, index: int, as_run: bool) -> Call:
        batch, rows, inner, columns = product.batch, product.rows, product.inner, product.columns
        left, right, out = product.buffer_names(index)
        x = self._view(product, left, batch, rows, inner)
        if product.flipped:
            other = self._view(product, right, batch, columns, inner).mT
        else:
            other = self._view(product, right, batch, inner, columns)
        if as_run:
            return partial(onednn_linear, x[0], other[0].mT)
        return partial(torch.bmm, x, other, out=self._view(product, out, batch, rows, columns))

    def _strided(self, weight: Tensor) -> Tensor:
        """A weight as a strided tensor; one that oneDNN has packed is unpacked once."""
        if weight.layout == torch.strided:
            return weight
        if id(weight) not in self._unpacked:
            self._unpacked[id(weight)] = weight, weight.to_dense()
        return self._unpacked[id(weight)][1]

    def _view(self, product: Product, name: str, *shape: int) -> Tensor:
        return self._memory[name, product.dtype][: math.prod(shape)].view(shape)


class ProductReplay:
    """Recorded steps of products, ready to be executed; see `Buffers.call`.

    With a `capturer`, each step is executed once and captured, so that its time contains no
    launches by the host.
    """

    def __init__(
        self,
        steps: Iterable[Sequence[Product]],
        buffers: Buffers,
        as_run: bool = False,
        capturer: Capturer | None = None,
    ) -> None:
        self._device = buffers.device
        self._steps: list[Step] = [
            partial(
                _call_all,
                [buffers.call(product, index, as_run) for index, product in enumerate(step)],
            )
            for step in steps
        ]
        if capturer is not None:
            self._steps = [_captured(step, capturer) for step in self._steps]

    @torch.inference_mode()
    def run(self) -> list[float]:
        """Execute all products; returns the seconds of each step."""
        times = []
        for step in self._steps:
            started = synchronized_time(self._device)
            step()
            times.append(synchronized_time(self._device) - started)
        return times


def _call_all(calls: Iterable[Call]) -> Sequence[Tensor]:
    return [call() for call in calls]


@torch.inference_mode()
def _captured(step: Step, capturer: Capturer) -> Step:
    """A function that repeats a step, which is executed first so that its routines are loaded."""
    step()
    _, replay = capturer.capture(step)
    return replay or step
