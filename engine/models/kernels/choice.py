"""Kernels: the routine that computes an operation, by class of shapes."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import torch

TORCH = "torch"  # the routine of every class that was not measured, and the default
ROUTINES: Mapping[str, tuple[str, ...]] = MappingProxyType({
    "linear": (TORCH, "transposed", "onednn", "packed"),
    "gated": (TORCH, "transposed", "onednn", "packed"),
    "attention": (TORCH, "by_head", "two_products"),
})  # fmt: skip
LAYOUTS = "transposed", "packed"  # routines with a copy of the weights in another layout
GAIN = 0.95  # another routine is chosen if it takes at most this share of torch's time
ROW_CLASSES = (8, 32, 128, 512)
KEY_CLASSES = (128, 512)  # with more keys the same routines are faster, by the same factor or more
LARGEST_SIZE = 1024  # larger products are taken to behave like those of this size
MOST_OTHERS = 16  # MiB; a step has read more than any core's own cache holds by then


@dataclass(frozen=True)
class ShapeClass:
    """Shapes for which the same routine is used.

    Attributes:
        operation: a key of ROUTINES.
        dtype: the number format, as `float32`.
        rows: one of ROW_CLASSES.
        sizes: up to LARGEST_SIZE each: inputs and outputs of a product; keys (one of KEY_CLASSES),
            width of a head and number of heads of an attention. A routine may be fast at powers of
            two and slow at other sizes of a product, so these are not rounded.
        others: about how many MiB of other weights a model reads before it uses the same weights
            again, a power of two up to MOST_OTHERS. They decide which caches still hold them.
    """

    operation: str
    dtype: str
    rows: int
    sizes: tuple[int, ...]
    others: int = 1

    @classmethod
    def of(
        cls, operation: str, dtype: torch.dtype, rows: int, sizes: tuple[int, ...], others: int = 1
    ) -> ShapeClass:
        """The class of a shape: the nearest rows, keys and others, on a logarithmic scale."""
        first, *rest = sizes
        sizes = (_nearest(first, KEY_CLASSES) if operation == "attention" else first, *rest)
        bounded = tuple(min(size, LARGEST_SIZE) for size in sizes)
        others = min(int(2 ** round(math.log2(max(others, 1)))), MOST_OTHERS)
        name = str(dtype).removeprefix("torch.")
        return cls(operation, name, _nearest(rows, ROW_CLASSES), bounded, others)

    @property
    def key(self) -> str:
        """The class as text."""
        sizes = "x".join(map(str, self.sizes))
        return f"{self.operation} {self.dtype} {self.rows} {sizes} {self.others}"

    @classmethod
    def from_key(cls, key: str) -> ShapeClass:
        """Restore from `key`; ValueError for anything else."""
        operation, dtype, rows, sizes, others = key.split(" ")
        found = cls(operation, dtype, int(rows), tuple(map(int, sizes.split("x"))), int(others))
        if found.key != key or operation not in ROUTINES:
            raise ValueError(f"kernels: {key[:60]!r} is no class of shapes")
        return found


Times = Mapping[ShapeClass, Mapping[str, float]]  # seconds of each routine
Fused = Mapping[str, Callable[..., Any]]  # kernels of operations, by name


class Kernels:
    """The routine of each class of shapes, from measured times; TORCH where none are known.

    `others` is that of ShapeClass for all shapes of a model. `fused` are the kernels that replace
    torch's operations, see `engine.models.kernels.fused`.
    """

    def __init__(
        self,
        times: Times = MappingProxyType({}),
        others: int = 1,
        fused: Fused = MappingProxyType({}),
    ) -> None:
        self.times = times
        self.others = others
        self.fused = fused
        self._routines: dict[tuple[Any, ...], str] = {}

    def routine(
        self, operation: str, dtype: torch.dtype, rows: int, *sizes: int, copies: bool = True
    ) -> str:
        """The routine for a shape; `sizes` are those of ShapeClass.

        `copies`: whether weights may be kept in another layout too (LAYOUTS).
        """
        shape = operation, dtype, rows, sizes, copies
        found = self._routines.get(shape)
        if found is None:
            shape_class = ShapeClass.of(operation, dtype, rows, sizes, self.others)
            known = self.times.get(shape_class, {TORCH: 0.0})
            times = {name: t for name, t in known.items() if copies or name not in LAYOUTS}
            found = self._routines[shape] = fastest(times)
        return found


def fastest(times: Mapping[str, float]) -> str:
    """The routine with the lowest time, but TORCH unless another one is clearly faster."""
    best = min(times, key=lambda name: times[name])
    return best if times[best] <= GAIN * times[TORCH] else TORCH


def _nearest(size: int, classes: Sequence[int]) -> int:
    """The one of `classes` that is nearest to a size on a logarithmic scale."""
    return min(classes, key=lambda n: abs(math.log2(max(size, 1) / n)))
