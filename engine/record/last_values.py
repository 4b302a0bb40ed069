"""LastValues: the last value of every row in every layer, and the drift of new ones."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from engine.core.drift_codes import NOT_EVALUATED, OFFSET, SCALE
from engine.core.events import QUANTITIES
from engine.core.rows import ALL, Rows, is_empty
from engine.models.base import ModelInfo
from engine.models.ops import upcast


def encode_drift(drift: Tensor) -> Tensor:
    """`drift_codes.encode` of a tensor, on its device."""
    code = (torch.log1p(drift.clamp(0, 2) / OFFSET) * SCALE).round()
    return code.nan_to_num(nan=NOT_EVALUATED).to(torch.uint8)


def cosine_distance(a: Tensor, b: Tensor) -> Tensor:
    """1 - cosine over the last dimension, at least in float32; NaN if one vector is 0."""
    a, b = upcast(a), upcast(b)
    norms = torch.linalg.vector_norm(a, dim=-1) * torch.linalg.vector_norm(b, dim=-1)
    return 1 - (a * b).sum(-1) / norms


class LastValues:
    """The last values of one sequence and the drift codes of those computed in a step.

    Attributes:
        values: for each of QUANTITIES [layers, T, width]; 0 if never computed.
        codes: [QUANTITIES, layers, T] uint8, drift codes of 1 - cosine between the value computed
            since `clear` and the last one before, 255 if either is missing.
    """

    def __init__(
        self, info: ModelInfo, length: int, dtype: torch.dtype, device: torch.device
    ) -> None:
        widths = (info.d_kv, info.d_kv, info.d_model, info.d_model, info.head_dim)
        shape = (info.layers, length)
        options: dict[str, Any] = {"dtype": dtype, "device": device}
        self.values = {
            name: torch.zeros((*shape, width), **options)
            for name, width in zip(QUANTITIES, widths, strict=True)
        }
        options["dtype"] = torch.promote_types(dtype, torch.float32)
        self._norms = {name: torch.zeros(shape, **options) for name in QUANTITIES}
        self.codes = torch.empty((len(QUANTITIES), *shape), dtype=torch.uint8, device=device)
        self._length = length

    def clear(self) -> None:
        """Reset the codes at the start of a step."""
        self.codes.fill_(NOT_EVALUATED)

    def update(self, name: str, rows: Sequence[Rows], read: Callable[[int], Tensor]) -> None:
        """Store new values of a quantity and their codes.

        `read(i)` [n, ...] are the values of layer i at `rows[i]`. Layers with the same slice are
        stored in one operation, and so are all layers with index rows.
        """
        slices: dict[tuple[int, int], list[int]] = {}
        indices: list[tuple[int, Tensor]] = []
        for layer, chosen in enumerate(rows):
            if chosen is ALL:
                slices.setdefault((0, self._length), []).append(layer)
            elif isinstance(chosen, Tensor):
                indices.append((layer, chosen[0]))
            elif not is_empty(chosen):
                slices.setdefault((chosen.start, chosen.stop), []).append(layer)
        for (start, stop), layers in slices.items():
            new = torch.stack([read(layer) for layer in layers])
            self._store(name, (_contiguous(layers), slice(start, stop)), new.flatten(2))
        if indices:
            layers_of = torch.cat([torch.full_like(chosen, layer) for layer, chosen in indices])
            new = torch.cat([read(layer).flatten(1) for layer, _ in indices])
            self._store(name, (layers_of, torch.cat([chosen for _, chosen in indices])), new)

    def _store(self, name: str, where: Any, new: Tensor) -> None:
        values, norms, fresh = self.values[name], self._norms[name], upcast(new)
        norm = torch.linalg.vector_norm(fresh, dim=-1)
        both = norm * norms[where]
        product = upcast(values[where]).mul_(fresh)  # in place: the old value is not needed again
        self.codes[QUANTITIES.index(name)][where] = encode_drift(1 - product.sum(-1) / both)
        values[where], norms[where] = new, norm


def _contiguous(layers: list[int]) -> slice | list[int]:
    """The layers as a slice if they are consecutive."""
    whole = slice(layers[0], layers[-1] + 1)
    return whole if whole.stop - whole.start == len(layers) else layers
