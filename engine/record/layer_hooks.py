"""LayerHooks: a proxy of an adapter that notes the outputs of its layers for a recorder."""

from __future__ import annotations

from collections.abc import Container
from typing import Any

from torch import Tensor

from engine.core.rows import Rows
from engine.models.base import ModelAdapter
from engine.record.notes import ForwardNotes


class LayerHooks:
    """Computes what `inner` computes, and notes the outputs in `notes`.

    `stored` may name K and V, which are then not noted: the recorder reads them from a store.

    Attributes:
        keep_logits: whether `raw_logits` are kept.
        raw_logits: [B, n, V] of the last call.
    """

    def __init__(
        self, inner: ModelAdapter, notes: ForwardNotes, stored: Container[str] = ()
    ) -> None:
        self.inner, self._notes, self._stored = inner, notes, stored
        self.raw_logits: Tensor | None = None
        self.keep_logits = False

    def __getattr__(self, name: str) -> Any:
        """All else is that of `inner`."""
        return getattr(self.inner, name)

    def project(
        self, layer: int, names: str, x: Tensor, rows: Rows, length: int, heads: slice | None = None
    ) -> tuple[Tensor, ...]:
        """As `inner`; notes copies of K and V of all heads, and of queries that include head 0.

        The results are views of whole projections, which a note would keep in memory.
        """
        out = self.inner.project(layer, names, x, rows, length, heads)
        for name, values in zip(names, out, strict=True):
            if name == "q" and (heads is None or heads.start == 0):
                if self._note("q0", layer, values[:, :, 0].contiguous()):
                    self._notes.query_rows[layer] = rows
            elif name != "q" and heads is None and name not in self._stored:
                self._note(name, layer, values.contiguous())
        return out

    def attend(self, layer: int, *operands: Any) -> Tensor:
        """As `inner`."""
        out = self._notes.outputs["attn", layer] = self.inner.attend(layer, *operands)
        return out

    def attend_with_weights(self, layer: int, *operands: Any) -> tuple[Tensor, Tensor]:
        """As `inner`."""
        out = self.inner.attend_with_weights(layer, *operands)
        self._notes.outputs["attn", layer] = out[0]
        return out

    def mlp(self, layer: int, h: Tensor) -> Tensor:
        """As `inner`; notes the experts too, in a layer that has some."""
        out, experts = self.inner.mlp_with_experts(layer, h)
        self._notes.outputs["ffn", layer] = out
        if experts is not None:
            self._notes.outputs["experts", layer] = experts
        return out

    def logits(self, h: Tensor) -> Tensor:
        """As `inner`; keeps a copy, since the decoder writes into the result."""
        out = self.inner.logits(h)
        self.raw_logits = out.clone() if self.keep_logits else None
        return out

    def _note(self, name: str, layer: int, values: Tensor) -> bool:
        """Note an output unless one with more rows is noted already; whether it was noted."""
        known = self._notes.outputs.get((name, layer))
        most_rows = known is None or known.shape[1] <= values.shape[1]
        if most_rows:
            self._notes.outputs[name, layer] = values
        return most_rows
