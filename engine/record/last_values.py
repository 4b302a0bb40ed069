"""Latest: the last computed value of every row in every layer, and how far a new one lies off."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from engine.core.drift_codes import NOT_EVALUATED, SCALE, OFFSET
from engine.core.events import QUANTITIES
from engine.core.rows import ALL, Rows, is_empty
from engine.models.base import ModelInfo
from engine.models.ops import wide


def encode_drift(drift: Tensor) -> Tensor:
    """logcode.encode of a tensor, on its device."""
    code = (torch.log1p(drift.clamp(0, 2) / OFFSET) * SCALE).round()
    return code.nan_to_num(nan=NOT_EVALUATED).to(torch.uint8)


def cosine_distance(a: Tensor, b: Tensor) -> Tensor:
    """1 - cosine of the last dimension, at least in float32; NaN where one of them is 0."""
    a, b = wide(a), wide(b)
    norms = torch.linalg.vector_norm(a, dim=-1) * torch.linalg.vector_norm(b, dim=-1)
    return 1 - (a * b).sum(-1) / norms


class LastValues:
    """Values of QUANTITIES of one sequence, [layers, T, width] each; 0 before the first.

    `codes` [QUANTITIES, layers, T] uint8: 1 - cosine between what was computed since `clear` and
    what was computed last before it, 255 where one of them is missing (engine.core.drift_codes).
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
        """Begin a step."""
        self.codes.fill_(NOT_EVALUATED)

    def renew(self, name: str, rows: Sequence[Rows], give: Callable[[int], Tensor]) -> None:
        """Take new values of a quantity: of layer i the global `rows[i]`, `give(i)` [n, ...].

        Layers with the same span of rows are taken together, and so are all others.
        """
        spans: dict[tuple[int, int], list[int]] = {}
        loose: list[tuple[int, Tensor]] = []
        for layer, chosen in enumerate(rows):
            if chosen is ALL:
                spans.setdefault((0, self._length), []).append(layer)
            elif isinstance(chosen, Tensor):
                loose.append((layer, chosen[0]))
            elif not is_empty(chosen):
                spans.setdefault((chosen.start, chosen.stop), []).append(layer)
        for (start, stop), layers in spans.items():
            new = torch.stack([give(layer) for layer in layers])
            self._take(name, (_run(layers), slice(start, stop)), new.flatten(2))
        if loose:
            layers_of = torch.cat([torch.full_like(chosen, layer) for layer, chosen in loose])
            new = torch.cat([give(layer).flatten(1) for layer, _ in loose])
            self._take(name, (layers_of, torch.cat([chosen for _, chosen in loose])), new)

    def _take(self, name: str, where: Any, new: Tensor) -> None:
        values, norms, fresh = self.values[name], self._norms[name], wide(new)
        norm = torch.linalg.vector_norm(fresh, dim=-1)
        both = norm * norms[where]
        product = wide(values[where]).mul_(fresh)  # in place: the old value is of no more use
        self.codes[QUANTITIES.index(name)][where] = encode_drift(1 - product.sum(-1) / both)
        values[where], norms[where] = new, norm


def _run(layers: list[int]) -> slice | list[int]:
    """The layers as a slice where they follow each other."""
    whole = slice(layers[0], layers[-1] + 1)
    return whole if whole.stop - whole.start == len(layers) else layers
