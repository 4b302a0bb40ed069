"""WorkCounter: FLOPs of a step, and the bytes that its matrix products read and write."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from engine.models.base import ModelInfo
from engine.models.flops import FlopCounter

LOGIT_BYTES = 8 + 8 + 8  # of a logit: float64 copies that tokens are proposed from


@dataclass
class WorkCounter(FlopCounter):
    """A FlopCounter that also counts bytes, for one sequence.

    `weight_bytes`: weights that are read, each matrix once a product. `key_bytes`: keys and values
    that attention reads. `activation_bytes`: inputs and outputs of the products, those of
    attention's scores not included; they are proportional to the rows.
    """

    number_bytes: int = 2
    weight_bytes: int = 0
    key_bytes: int = 0
    activation_bytes: int = 0

    @classmethod
    def of(cls, info: ModelInfo, dtype: torch.dtype) -> WorkCounter:
        """An empty counter for activations and weights of a number format."""
        return cls(info, dtype.itemsize)

    def project(self, layer: int, names: str, rows: int) -> None:
        """See FlopCounter.project."""
        super().project(layer, names, rows)
        info = self.info
        width = sum(info.d_q if name == "q" else info.d_kv for name in names)
        self._product(rows, info.d_model, width)

    def attend(self, layer: int, rows: int, keys: int) -> None:
        """See FlopCounter.attend; the keys and values are read once."""
        super().attend(layer, rows, keys)
        if rows:
            self.key_bytes += 2 * keys * self.info.d_kv * self.number_bytes
        self._product(rows, self.info.d_q, self.info.d_model)

    def feed_forward(self, layer: int, rows: int) -> None:
        """See FlopCounter.feed_forward."""
        super().feed_forward(layer, rows)
        self._product(rows, self.info.d_model, 2 * self.info.ffn)
        self._product(rows, self.info.ffn, self.info.d_model)

    def head(self, rows: int) -> None:
        """See FlopCounter.head; the logits are then copied as float64."""
        super().head(rows)
        self._product(rows, self.info.d_model, self.info.vocab_size)
        self.activation_bytes += rows * self.info.vocab_size * LOGIT_BYTES

    def add(self, other: FlopCounter, times: int = 1) -> None:
        """Add another counter; with `times`, a forward of so many rows of which it counts one."""
        super().add(other, times)
        if isinstance(other, WorkCounter):
            self.weight_bytes += other.weight_bytes
            self.key_bytes += other.key_bytes
            self.activation_bytes += times * other.activation_bytes

    def per_row(self, rows: int) -> WorkCounter:
        """See FlopCounter.per_row; weights and keys are read once for all rows."""
        one = WorkCounter(self.info, self.number_bytes)
        one.flops, one.rows = self.flops // rows, self.rows // rows
        one.weight_bytes, one.key_bytes = self.weight_bytes, self.key_bytes
        one.activation_bytes = self.activation_bytes // rows
        return one

    def _product(self, rows: int, inner: int, outputs: int) -> None:
        if rows:
            self.weight_bytes += inner * outputs * self.number_bytes
            self.activation_bytes += rows * (inner + outputs) * self.number_bytes
