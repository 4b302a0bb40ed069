"""The floor of a run: its matrix products alone, noted while it runs and then multiplied again.

A product's weight is kept itself, so that the replay reads as many cold bytes as the run did; of
activations only shapes are kept. Attention counts as two products, QK^T and PV, written out.
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

from engine.core.device import now
from engine.models.linear import ONEDNN, multiply

ATEN = torch.ops.aten
PAIRS = {ATEN.mm: 0, ATEN.bmm: 0, ATEN.matmul: 0, ATEN.addmm: 1, ATEN.baddbmm: 1}
Call = Callable[[], Tensor]


@dataclass(frozen=True)
class Product:
    """[batch, rows, inner] times [batch, inner, columns].

    `weight` [columns, inner] is the right operand where it belongs to a model, `bias` [columns]
    what is added, `onednn` whether that library multiplies; of an activation `flipped` says that
    it lies as [batch, columns, inner]. `role` is "scores" for QK^T, "sums" for PV, whose left
    operand is the scores, else empty.
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
        """A multiply-add counts as two."""
        return 2 * self.batch * self.rows * self.inner * self.columns

    @property
    def read(self) -> int:
        """Bytes of the right operand: a weight, or keys or values."""
        return self.batch * self.inner * self.columns * self.dtype.itemsize

    def buffers(self, place: int) -> dict[str, int]:
        """Numbers in its activations, by the buffer each lies in; `place` is that in the step."""
        left, right, out = self.names(place)
        sizes = {left: self.rows * self.inner, out: self.rows * self.columns}
        if self.weight is None:
            sizes[right] = self.inner * self.columns
        return {name: self.batch * size for name, size in sizes.items()}

    def names(self, place: int) -> tuple[str, str, str]:
        """The buffers of left operand, right operand and result.

        What a product has just made is read while it is warm, so these share one; keys and values
        lie at a place of their own, as they do in a store.
        """
        left = "scores" if self.role == "sums" else "left"
        return left, f"right {place}", "scores" if self.role == "scores" else "out"


class ProductRecorder(TorchDispatchMode):
    """Notes in order what is multiplied under it; `cut` ends a step, `steps` holds the ended.

    What oneDNN is given as a weight belongs to `model` or is an activation.
    """

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self._places = {p.untyped_storage().data_ptr() for p in model.parameters()}
        self.steps: list[list[Product]] = []
        self._open: list[Product] = []

    def cut(self) -> None:
        """The next product belongs to a new step."""
        self.steps.append(self._open)
        self._open = []

    def __torch_dispatch__(
        self,
        func: Any,
        types: Sequence[type],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        """Run what was called, and note it where it multiplies."""
        out = func(*args, **(kwargs or {}))
        packet = func.overloadpacket
        if packet is ONEDNN and func is ONEDNN.binary:
            args = args[0], *args[2:]  # without the factor of the product
        if packet is ONEDNN and not self._owned(args[1]):
            self._open.append(_of_head(*args[:2]))
        elif packet in (ATEN.linear, ONEDNN):
            self._open.append(_linear(packet is ONEDNN, out, *args[:3]))
        elif packet is ATEN.scaled_dot_product_attention:
            self._open += _attention(*args[:3])
        elif packet in PAIRS:
            left, right = args[PAIRS[packet] :][:2]
            self._open.append(_pair(left, right, out))
        return out

    def _owned(self, weight: Tensor) -> bool:
        packed = weight.layout != torch.strided
        return packed or weight.untyped_storage().data_ptr() in self._places


def _of_head(x: Tensor, right: Tensor) -> Product:
    """QK^T of a head, whose keys lie as they are, or PV, whose values are turned."""
    columns, inner = right.shape
    keys = right.stride(-1) == 1
    role = "scores" if keys else "sums"
    return Product(1, len(x), inner, columns, x.dtype, onednn=True, flipped=keys, role=role)


def _linear(
    onednn: bool, out: Tensor, x: Tensor, weight: Tensor, bias: Tensor | None = None
) -> Product:
    columns, inner = weight.shape
    rows = x.numel() // inner
    return Product(1, rows, inner, columns, out.dtype, weight, bias, onednn)


def _attention(q: Tensor, k: Tensor, v: Tensor) -> tuple[Product, Product]:
    """Queries of a group of heads are rows of one product with the keys that they share."""
    batch, keys = k.shape[0] * k.shape[1], k.shape[2]
    rows = q[..., 0].numel() // batch
    return (
        Product(batch, rows, q.shape[3], keys, q.dtype, flipped=True, role="scores"),
        Product(batch, rows, keys, v.shape[3], q.dtype, role="sums"),
    )


def _pair(left: Tensor, right: Tensor, out: Tensor) -> Product:
    """The right operand's leading dimensions are a batch, unless it is one matrix for all."""
    inner, columns = right.shape[-2:]
    batch = 1 if right.dim() == 2 else math.prod(out.shape[:-2])
    rows = out.numel() // (batch * columns)
    return Product(batch, rows, inner, columns, left.dtype, flipped=right.stride(-1) != 1)


class Buffers:
    """Memory for the activations of any of `steps`: a flat tensor a name, as large as is needed."""

    def __init__(self, steps: Iterable[Sequence[Product]], device: torch.device) -> None:
        sizes: dict[tuple[str, torch.dtype], int] = {}
        for step in steps:
            for place, product in enumerate(step):
                for name, size in product.buffers(place).items():
                    key = name, product.dtype
                    sizes[key] = max(size, sizes.get(key, 0))
        draw = torch.Generator(device).manual_seed(0)
        self._flat = {
            key: torch.empty(size, dtype=key[1], device=device).normal_(generator=draw)
            for key, size in sizes.items()
        }
        self._opened: dict[int, tuple[Tensor, Tensor]] = {}
        self.device = device

    def call(self, product: Product, place: int, own: bool = False) -> Call:
        """What multiplies, by torch's own product into memory that is there already.

        `own`: by the routine that the run took.
        """
        own = own and product.onednn
        if product.weight is None:
            return self._of_activations(product, place, own)
        left, _, out = product.names(place)
        x, bias = self._at(product, left, product.rows, product.inner), product.bias
        if own:
            return partial(multiply, x, product.weight, bias)
        pair = x, self._strided(product.weight).T
        result = self._at(product, out, product.rows, product.columns)
        if bias is None:
            return partial(torch.mm, *pair, out=result)
        return partial(torch.addmm, bias, *pair, out=result)

    def _of_activations(self, product: Product, place: int, own: bool) -> Call:
        batch, rows, inner, columns = product.batch, product.rows, product.inner, product.columns
        left, right, out = product.names(place)
        shape = (columns, inner) if product.flipped else (inner, columns)
        x, other = (
            self._at(product, left, batch, rows, inner),
            self._at(product, right, batch, *shape),
        )
        if own:
            return partial(multiply, x[0], other[0] if product.flipped else other[0].mT)
        pair = x, other.mT if product.flipped else other
        return partial(torch.bmm, *pair, out=self._at(product, out, batch, rows, columns))

    def _strided(self, weight: Tensor) -> Tensor:
        """A weight in rows and columns, however the library keeps it."""
        if weight.layout == torch.strided:
            return weight
        if id(weight) not in self._opened:
            self._opened[id(weight)] = weight, weight.to_dense()
        return self._opened[id(weight)][1]

    def _at(self, product: Product, name: str, *shape: int) -> Tensor:
        return self._flat[name, product.dtype][: math.prod(shape)].view(shape)


class Replay:
    """Steps of products, ready to be multiplied again, as `Buffers.call` says."""

    def __init__(
        self, steps: Iterable[Sequence[Product]], buffers: Buffers, own: bool = False
    ) -> None:
        self._device = buffers.device
        self._steps = [
            [buffers.call(p, place, own) for place, p in enumerate(step)] for step in steps
        ]

    @torch.inference_mode()
    def run(self) -> list[float]:
        """Multiply all; the seconds of each step."""
        times = []
        for step in self._steps:
            started = now(self._device)
            for call in step:
                call()
            times.append(now(self._device) - started)
        return times
