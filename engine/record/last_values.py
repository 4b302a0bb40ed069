"""LastValues: the last value of every row in every layer, and the drift of new ones."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from engine.core.device import upload
from engine.core.drift_codes import NOT_EVALUATED, OFFSET, SCALE
from engine.core.events import QUANTITIES, RecordedCells
from engine.core.rows import ALL, Rows, is_empty
from engine.models.base import ModelInfo
from engine.models.ops import upcast

MAX_UPCAST = 1 << 26  # values in float32 at a time: 256 MB, and as much for those before


def encode_drift(drift: Tensor) -> Tensor:
    """`drift_codes.encode` of a tensor, on its device."""
    code = (torch.log1p(drift.clamp(0, 2) / OFFSET) * SCALE).round()
    return code.nan_to_num(nan=NOT_EVALUATED).to(torch.uint8)


def cosine_distance(a: Tensor, b: Tensor) -> Tensor:
    """1 - cosine over the last dimension, at least in float32; NaN if one vector is 0."""
    a, b = upcast(a), upcast(b)
    norms = torch.linalg.vector_norm(a, dim=-1) * torch.linalg.vector_norm(b, dim=-1)
    return 1 - (a * b).sum(-1) / norms


def quantity_widths(info: ModelInfo) -> tuple[int, ...]:
    """The numbers in a row's value of each quantity."""
    return info.d_kv, info.d_kv, info.d_model, info.d_model, info.head_dim


class LastValues:
    """The last values of one sequence in the recorded `cells`, of which it keeps all positions.

    Attributes:
        values: for each recorded quantity [I, T, width]; 0 if never computed.
    """

    def __init__(
        self,
        info: ModelInfo,
        cells: RecordedCells,
        length: int,
        dtype: torch.dtype,
        device: torch.device,
    ) -> None:
        widths = quantity_widths(info)
        shape = (len(cells.layers), length)
        options: dict[str, Any] = {"dtype": dtype, "device": device}
        self.values = {
            QUANTITIES[i]: torch.zeros((*shape, widths[i]), **options) for i in cells.quantities
        }
        self._names = list(self.values)
        options["dtype"] = torch.promote_types(dtype, torch.float32)
        each = (len(self._names), *shape)
        self._norms = torch.zeros(each, **options)  # of the values before the step
        self._new_norms = torch.full(each, torch.nan, **options)  # NaN: no new value
        self._products = torch.zeros(each, **options)  # of new value and last one
        self._length, self._device = length, device

    def update(self, name: str, rows: Sequence[Rows], read: Callable[[int], Tensor]) -> None:
        """Store new values of a quantity.

        `read(i)` [1, n, ...] are the values of recorded layer i at `rows[i]`. Layers with the same
        slice are stored in one operation, and so are all layers with index rows.
        """
        slices: dict[tuple[int, int], list[int]] = {}
        indices: dict[int, Tensor] = {}
        for layer, chosen in enumerate(rows):
            if chosen is ALL:
                slices.setdefault((0, self._length), []).append(layer)
            elif isinstance(chosen, Tensor):
                indices[layer] = chosen[0]
            elif not is_empty(chosen):
                slices.setdefault((chosen.start, chosen.stop), []).append(layer)
        quantity = self._names.index(name)
        for (start, stop), layers in slices.items():
            new = torch.cat([read(layer) for layer in layers]).flatten(2)
            self._store_slice(quantity, (_contiguous(layers), slice(start, stop)), new)
        if indices:
            new = torch.cat([read(layer) for layer in indices], 1).flatten(2)
            self._store_index(quantity, self._places(indices), new[0])

    def take_codes(self) -> Tensor:
        """Drift codes of the values stored since the last call, [O, I, T] uint8.

        They encode 1 - cosine between a new value and the last one before; 255 if either is
        missing.
        """
        codes = encode_drift(1 - self._products / (self._norms * self._new_norms))
        self._norms = torch.where(self._new_norms.isnan(), self._norms, self._new_norms)
        self._new_norms.fill_(torch.nan)
        return codes

    def _store_slice(self, quantity: int, where: Any, new: Tensor) -> None:
        """Store values [layers, n, width] at `where`, layers and a slice of rows."""
        name = self._names[quantity]
        values = self.values[name]
        norms, products = _norms_and_products(new, values[where])
        self._new_norms[quantity][where], self._products[quantity][where] = norms, products
        if new.shape == values.shape:
            self.values[name] = new
        else:
            values[where] = new

    def _store_index(self, quantity: int, places: Tensor, new: Tensor) -> None:
        """Store values [n, width] at `places` [n] of all layers and rows in one dimension."""
        values = self.values[self._names[quantity]].flatten(0, 1)
        norms, products = _norms_and_products(new, values.index_select(0, places))
        self._new_norms[quantity].view(-1).index_copy_(0, places, norms)
        self._products[quantity].view(-1).index_copy_(0, places, products)
        values.index_copy_(0, places, new)

    def _places(self, indices: dict[int, Tensor]) -> Tensor:
        """Index rows by layer as places in a dimension of layers times rows."""
        counts = [len(rows) for rows in indices.values()]
        starts = np.repeat(np.array(list(indices)) * self._length, counts)
        return torch.cat(list(indices.values())) + upload(starts, self._device)


def _norms_and_products(new: Tensor, old: Tensor) -> tuple[Tensor, Tensor]:
    """Norms of `new` [n, ..., width], and its scalar products with `old`, which is overwritten.

    About MAX_UPCAST values are in float32 at a time: all layers of a long canvas would need more
    memory than the values themselves.
    """
    size = max(MAX_UPCAST * len(new) // max(new.numel(), 1), 1)
    if len(new) > size:
        pairs = zip(new.split(size), old.split(size), strict=True)
        parts = [_norms_and_products(*pair) for pair in pairs]
        norms, products = (torch.cat(part) for part in zip(*parts, strict=True))
        return norms, products
    new, old = upcast(new), upcast(old)
    return torch.linalg.vector_norm(new, dim=-1), old.mul_(new).sum(-1)


def _contiguous(layers: list[int]) -> slice | list[int]:
    """The layers as a slice if they are consecutive."""
    whole = slice(layers[0], layers[-1] + 1)
    return whole if whole.stop - whole.start == len(layers) else layers
