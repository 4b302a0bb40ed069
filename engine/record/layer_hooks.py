"""LayerHooks: a proxy of an adapter that keeps the outputs of its layers for a recorder."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from engine.core.rows import Rows
from engine.models.base import ModelAdapter


class LayerHooks:
    """Computes what `inner` computes and keeps the outputs until `clear`.

    Attributes:
        outputs: (quantity, layer) -> [B, n, ...]; `k`, `v` and `q0` (the query of head 0) of the
            call with the most rows, `attn` and `ffn` of the last call.
        rows: layer -> the rows of its `q0`.
        keep_logits: whether `raw_logits` are kept.
        raw_logits: [B, n, V] of the last call.
    """

    def __init__(self, inner: ModelAdapter) -> None:
        self.inner = inner
        self.outputs: dict[tuple[str, int], Tensor] = {}
        self.rows: dict[int, Rows] = {}
        self.raw_logits: Tensor | None = None
        self.keep_logits = False

    def __getattr__(self, name: str) -> Any:
        """All else is that of `inner`."""
        return getattr(self.inner, name)

    def clear(self) -> None:
        """Release all outputs."""
        self.outputs.clear()
        self.rows.clear()
        self.raw_logits = None

    def project(
        self, layer: int, names: str, x: Tensor, rows: Rows, length: int, heads: slice | None = None
    ) -> tuple[Tensor, ...]:
        """As `inner`; keeps K and V of all heads, and queries that include head 0."""
        out = self.inner.project(layer, names, x, rows, length, heads)
        for name, values in zip(names, out, strict=True):
            if name == "q" and (heads is None or heads.start == 0):
                if self._keep("q0", layer, values[:, :, 0]):
                    self.rows[layer] = rows
            elif heads is None:
                self._keep(name, layer, values)
        return out

    def attend(self, layer: int, *operands: Any) -> Tensor:
        """As `inner`."""
        out = self.outputs["attn", layer] = self.inner.attend(layer, *operands)
        return out

    def attend_with_weights(self, layer: int, *operands: Any) -> tuple[Tensor, Tensor]:
        """As `inner`."""
        out = self.inner.attend_with_weights(layer, *operands)
        self.outputs["attn", layer] = out[0]
        return out

    def mlp(self, layer: int, h: Tensor) -> Tensor:
        """As `inner`."""
        out = self.outputs["ffn", layer] = self.inner.mlp(layer, h)
        return out

    def logits(self, h: Tensor) -> Tensor:
        """As `inner`; keeps a copy, since the decoder writes into the result."""
        out = self.inner.logits(h)
        self.raw_logits = out.clone() if self.keep_logits else None
        return out

    def _keep(self, name: str, layer: int, values: Tensor) -> bool:
        """Keep an output unless one with more rows is kept already; whether it was kept."""
        kept = self.outputs.get((name, layer))
        most_rows = kept is None or kept.shape[1] <= values.shape[1]
        if most_rows:
            self.outputs[name, layer] = values
        return most_rows
