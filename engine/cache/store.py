"""ActivationStore: the cached tensors of a run."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from engine.core.rows import ALL, Rows, local_rows, put, take
from engine.models.base import ModelInfo


@dataclass(frozen=True)
class Site:
    """An activation that a policy stores in each layer.

    `k` and `v` have the shape that attention takes, [B, Hkv, T, dh], `attn`, `ffn` and their sum
    `branch` [B, T, D], any other name [B, T, width]. `start` is the first position stored.
    """

    name: str
    width: int | None = None
    start: int = 0


class ActivationStore:
    """Tensors by (layer, site), allocated once for a run and written in place.

    Rows are global. The first write of a site must cover all rows that it stores. If attention is
    block-causal, it may cover the first rows alone, and later writes may extend it. `write` is
    `rows.put`, or a kernel that does the same.
    """

    def __init__(
        self,
        info: ModelInfo,
        sites: Sequence[Site],
        batch: int,
        length: int,
        dtype: torch.dtype,
        device: torch.device,
        write: Callable[[Tensor, Rows, Tensor, int], Any] = put,
    ) -> None:
        self._write = write
        self._sites = {site.name: site for site in sites}
        self.layers, self._length = info.layers, length
        self._extends = info.block_causal
        self._written: dict[tuple[int, str], int] = {}  # number of leading rows written
        self._data: dict[tuple[int, str], Tensor] = {}
        for site in sites:
            rows = length - site.start
            shape: tuple[int, ...] = (batch, rows, site.width or info.d_model)
            if site.name in ("k", "v"):
                shape = (batch, info.n_kv_heads, rows, info.head_dim)
            for layer in range(info.layers):
                self._data[layer, site.name] = torch.empty(shape, dtype=dtype, device=device)

    def keeps(self, name: str) -> bool:
        """Whether a site is stored."""
        return name in self._sites

    def keeps_output(self, branch: str) -> bool:
        """Whether the output of a branch, `attn` or `ffn`, is stored, alone or in their sum."""
        return self.keeps(branch) or self.keeps("branch")

    def written(self, layer: int, name: str, rows: Rows = ALL) -> bool:
        """Whether a site holds values at `rows`; of an index, whether it holds any."""
        return 0 < self._end(name, rows, 1) <= self._written.get((layer, name), 0)

    @property
    def written_rows(self) -> Mapping[tuple[int, str], int]:
        """The number of leading rows that hold values, by layer and site."""
        return dict(self._written)

    def clear(self) -> None:
        """Mark all sites as never written; the tensors stay allocated."""
        self._written.clear()

    def mark_written(self, rows: Mapping[tuple[int, str], int]) -> None:
        """Mark leading rows as written, after a replayed forward has written them."""
        for site, count in rows.items():
            self._written[site] = max(count, self._written.get(site, 0))

    def write(
        self, layer: int, name: str, rows: Rows, values: Tensor, idle: Tensor | None = None
    ) -> None:
        """Replace `rows` by `values` [B, n, ...], in the order of the rows.

        With ALL the values cover the canvas, and rows that the site does not store are dropped.
        Sequences that `idle` [B] marks keep their values at index rows.
        """
        places = self._places(name, rows)
        if rows is ALL:
            values = values[:, self._sites[name].start :]
        known = self._written.get((layer, name), 0)
        if not known and not self._extends:
            full = places is ALL or places == slice(0, self._length - self._sites[name].start)
            assert full, f"{name}: the first write of layer {layer} must cover every row"
        first = places.start if isinstance(places, slice) else int(isinstance(places, Tensor))
        assert first <= known, f"{name}: rows of layer {layer} before {first} were not written"
        self._written[layer, name] = max(known, self._end(name, rows, known))
        dim = 2 if name in ("k", "v") else 1
        data, values = self._data[layer, name], values.transpose(1, 2) if dim == 2 else values
        if idle is not None and isinstance(rows, Tensor):
            still = idle.view(-1, *[1] * (data.ndim - 1))
            values = torch.where(still, take(data, places, dim), values)
        self._write(data, places, values, dim)

    def read(self, layer: int, name: str, rows: Rows = ALL) -> Tensor:
        """The values at `rows`: a view for ALL and slices."""
        assert self.written(layer, name, rows), f"{name}: rows of layer {layer} were never written"
        dim = 2 if name in ("k", "v") else 1
        return take(self._data[layer, name], self._places(name, rows), dim)

    def nbytes(self) -> int:
        """Size of all tensors in bytes."""
        return sum(t.nbytes for t in self._data.values())

    def _end(self, name: str, rows: Rows, of_index: int) -> int:
        """The end of `rows` in a site's own numbering; `of_index` for an index."""
        places = self._places(name, rows)
        if places is ALL:
            return self._length - self._sites[name].start
        return places.stop if isinstance(places, slice) else of_index

    def _places(self, name: str, rows: Rows) -> Rows:
        start = self._sites[name].start
        return rows if start == 0 else local_rows(slice(start, self._length), rows)
