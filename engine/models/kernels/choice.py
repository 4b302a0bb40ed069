"""Kernels: the routine that computes an operation, by class of shapes."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import torch

TORCH = "torch"  # the routine of every class that was not measured, and the default
ROUTINES: Mapping[str, tuple[str, ...]] = MappingProxyType({
    "linear": (TORCH, "onednn", "packed"),
    "gated": (TORCH, "onednn", "packed"),
    "attention": (TORCH, "by_head", "two_products"),
})  # fmt: skip
GAIN = 0.95  # another routine is chosen if it takes at most this share of torch's time
ROW_CLASSES = (8, 32, 128, 512)
LARGEST_SIZE = 1024  # larger products are taken to behave like those of this size


@dataclass(frozen=True)
class ShapeClass:
    """Shapes for which the same routine is used.

    Attributes:
        operation: a key of ROUTINES.
        dtype: the number format, as `float32`.
        rows: one of ROW_CLASSES.
        sizes: powers of two up to LARGEST_SIZE: inputs and outputs of a product; keys, width of a
            head and number of heads of an attention.
    """

    operation: str
    dtype: str
    rows: int
    sizes: tuple[int, ...]

    @classmethod
    def of(
        cls, operation: str, dtype: torch.dtype, rows: int, sizes: tuple[int, ...]
    ) -> ShapeClass:
        """The class of a shape: the nearest row class and powers of two, on a logarithmic scale."""
        near = min(ROW_CLASSES, key=lambda n: abs(math.log2(max(rows, 1) / n)))
        return cls(operation, str(dtype).removeprefix("torch."), near, tuple(map(_power, sizes)))

    @property
    def key(self) -> str:
        """The class as text."""
        sizes = "x".join(map(str, self.sizes))
        return f"{self.operation} {self.dtype} {self.rows} {sizes}"

    @classmethod
    def from_key(cls, key: str) -> ShapeClass:
        """Restore from `key`; ValueError for anything else."""
        operation, dtype, rows, sizes = key.split(" ")
        found = cls(operation, dtype, int(rows), tuple(map(int, sizes.split("x"))))
        if found.key != key or operation not in ROUTINES:
            raise ValueError(f"kernels: {key[:60]!r} is no class of shapes")
        return found


Times = Mapping[ShapeClass, Mapping[str, float]]  # seconds of each routine


class Kernels:
    """The routine of each class of shapes, from measured times; TORCH where none are known."""

    def __init__(self, times: Times = MappingProxyType({})) -> None:
        self.times = times
        self._routines: dict[tuple[Any, ...], str] = {}

    def routine(
        self, operation: str, dtype: torch.dtype, rows: int, *sizes: int, packed: bool = True
    ) -> str:
        """The routine for a shape; `sizes` are those of ShapeClass.

        `packed`: whether weights may be copied into the layout of a library.
        """
        shape = operation, dtype, rows, sizes, packed
        found = self._routines.get(shape)
        if found is None:
            known = self.times.get(ShapeClass.of(operation, dtype, rows, sizes), {TORCH: 0.0})
            times = {name: t for name, t in known.items() if packed or name != "packed"}
            found = self._routines[shape] = fastest(times)
        return found


def fastest(times: Mapping[str, float]) -> str:
    """The routine with the lowest time, but TORCH unless another one is clearly faster."""
    best = min(times, key=lambda name: times[name])
    return best if times[best] <= GAIN * times[TORCH] else TORCH


def _power(size: int) -> int:
    """The power of two nearest to a size on a logarithmic scale, at most LARGEST_SIZE."""
    return int(min(2 ** round(math.log2(max(size, 1))), LARGEST_SIZE))
