"""Tap: an adapter that keeps what each of its layers gave, for whoever records it."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from engine.core.rows import Rows
from engine.models.base import Block, ModelAdapter


class LayerHooks(ModelAdapter):
    """Does what `inner` does; `given` holds each layer's outputs until they are forgotten.

    (quantity, layer) -> [B, n, ...]: `k`, `v` and `q0` (head 0's query) of the call with the most
    rows, `attn` and `ffn` of the last call. `rows` are the global rows of a layer's `q0`, `logits`
    [B, n, V] the last raw logits, kept only while `listening`.
    """

    def __init__(self, inner: ModelAdapter) -> None:
        nn.Module.__init__(self)
        self.info, self.inner = inner.info, inner
        self.given: dict[tuple[str, int], Tensor] = {}
        self.rows: dict[int, Rows] = {}
        self.logits_given: Tensor | None = None
        self.listening = False

    def forget(self) -> None:
        """Let go of everything heard."""
        self.given.clear()
        self.rows.clear()
        self.logits_given = None

    @property
    def device(self) -> torch.device:
        """That of `inner`, as are all that follow."""
        return self.inner.device

    @property
    def dtype(self) -> torch.dtype:
        """The weights' number format."""
        return self.inner.dtype

    def block(self, layer: int) -> Block:
        """The weights of one layer."""
        return self.inner.block(layer)

    def embed(self, ids: Tensor) -> Tensor:
        """As `inner`."""
        return self.inner.embed(ids)

    def attn_norm(self, layer: int, h: Tensor) -> Tensor:
        """As `inner`."""
        return self.inner.attn_norm(layer, h)

    def value_weight(self, layer: int) -> tuple[Tensor, Tensor | None]:
        """As `inner`."""
        return self.inner.value_weight(layer)

    def project(
        self, layer: int, names: str, x: Tensor, rows: Rows, length: int, heads: slice | None = None
    ) -> tuple[Tensor, ...]:
        """As `inner`; what is heard are whole K and V, and queries that include head 0."""
        out = self.inner.project(layer, names, x, rows, length, heads)
        for name, values in zip(names, out, strict=True):
            if name == "q" and (heads is None or heads.start == 0):
                if self._keep("q0", layer, values[:, :, 0]):
                    self.rows[layer] = rows
            elif heads is None:
                self._keep(name, layer, values)
        return out

    def attend(
        self, layer: int, q: Tensor, k: Tensor, v: Tensor, key_mask: Tensor | None
    ) -> Tensor:
        """As `inner`."""
        out = self.inner.attend(layer, q, k, v, key_mask)
        self.given["attn", layer] = out
        return out

    def attend_weighed(
        self, layer: int, q: Tensor, k: Tensor, v: Tensor, key_mask: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        """As `inner`."""
        out = self.inner.attend_weighed(layer, q, k, v, key_mask)
        self.given["attn", layer] = out[0]
        return out

    def mlp(self, layer: int, h: Tensor) -> Tensor:
        """As `inner`."""
        out = self.inner.mlp(layer, h)
        self.given["ffn", layer] = out
        return out

    def logits(self, h: Tensor) -> Tensor:
        """As `inner`; a copy is heard, since the decoder writes into what it gets."""
        out = self.inner.logits(h)
        self.logits_given = out.clone() if self.listening else None
        return out

    def _keep(self, name: str, layer: int, values: Tensor) -> bool:
        known = self.given.get((name, layer))
        more = known is None or known.shape[1] <= values.shape[1]
        if more:
            self.given[name, layer] = values
        return more
