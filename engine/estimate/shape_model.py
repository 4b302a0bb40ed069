"""ShapeAdapter: a model without weights, whose results have shapes and no values."""

from __future__ import annotations

import torch
from torch import Tensor

from engine.core.rows import ALL, Rows
from engine.models.base import ModelAdapter, ModelInfo

META = torch.device("meta")


class ShapeAdapter(ModelAdapter):
    """A model of the sizes `info` on torch's meta device; every operation gives an empty result.

    Policies and the forward pass run on it as on a real model, so that the rows and matrix
    products are those of a real run, but nothing is multiplied and no memory is used.
    """

    family = "shape"

    def __init__(self, info: ModelInfo, dtype: torch.dtype) -> None:
        with META:
            super().__init__(info)
        self.to(dtype)
        self._number = dtype

    @property
    def device(self) -> torch.device:
        """The meta device."""
        return META

    @property
    def dtype(self) -> torch.dtype:
        """The number format of the activations."""
        return self._number

    def embed(self, ids: Tensor, rows: Rows = ALL) -> Tensor:
        """[B, n] ids -> [B, n, D]."""
        return self._empty(*ids.shape, self.info.d_model)

    def attn_norm(self, layer: int, h: Tensor) -> Tensor:
        """[B, n, D], as the residual stream `h`."""
        return self._empty(*h.shape)

    def project(
        self, layer: int, names: str, x: Tensor, rows: Rows, length: int, heads: slice | None = None
    ) -> tuple[Tensor, ...]:
        """One [B, n, heads, dh] for each of `names`; see ModelAdapter.project."""
        info = self.info
        sizes = [info.n_heads if name == "q" else info.n_kv_heads for name in names]
        if heads is not None:
            sizes = [heads.stop - heads.start]
        return tuple(self._empty(*x.shape[:-1], size, info.head_dim) for size in sizes)

    def attend(
        self, layer: int, q: Tensor, k: Tensor, v: Tensor, key_mask: Tensor | None
    ) -> Tensor:
        """[B, n, D] for queries [B, n, H, dh]."""
        return self._empty(*q.shape[:2], self.info.d_model)

    def attend_with_weights(
        self, layer: int, q: Tensor, k: Tensor, v: Tensor, key_mask: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        """[B, n, D] and the weights [B, n, keys]."""
        return self.attend(layer, q, k, v, key_mask), self._empty(*q.shape[:2], k.shape[2])

    def mlp(self, layer: int, h: Tensor) -> Tensor:
        """[B, n, D], as the residual stream `h`."""
        return self._empty(*h.shape)

    def logits(self, h: Tensor) -> Tensor:
        """[B, n, V] of hidden rows [B, n, D]."""
        return self._empty(*h.shape[:2], self.info.vocab_size)

    def _empty(self, *shape: int) -> Tensor:
        return torch.empty(shape, dtype=self._number, device=META)
