"""FLOPs of a forward, counted where they are spent: by layer and part, a multiply-add as two.

The model is that of matrix products alone (projections with the attention output, attention
scores and sums, feed-forward, head, what a policy multiplies to decide); norms, rotations,
similarities and sorting are left out, as torch.utils.flop_counter leaves them out.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from engine.core.events import PARTS, SITES
from engine.models.base import ModelInfo


@dataclass
class FlopCounter:
    """One step's FLOPs [layers + 1, PARTS] (the last row is the head's and the guider's), and rows.

    `rows` [layers, 4] counts the K, V, attention and FFN rows that a policy renews, over all
    sequences; branches that nobody reads are among them and cost nothing.
    """

    info: ModelInfo
    flops: np.ndarray = field(init=False)
    rows: np.ndarray = field(init=False)

    def __post_init__(self) -> None:
        self.flops = np.zeros((self.info.layers + 1, len(PARTS)), np.int64)
        self.rows = np.zeros((self.info.layers, len(SITES)), np.int64)

    def project(self, layer: int, names: str, rows: int) -> None:
        """Projections named by letters of "qkv" at `rows` rows."""
        width = sum(self.info.d_model if name == "q" else self.info.d_kv for name in names)
        self.flops[layer, 0] += 2 * rows * self.info.d_model * width
        for name in names:
            if name != "q":
                self.rows[layer, "kv".index(name)] += rows

    def attend(self, layer: int, rows: int, keys: int) -> None:
        """Attention of `rows` queries over `keys` keys each, and its output projection."""
        d = self.info.d_model
        self.flops[layer, 1] += 4 * rows * keys * d
        self.flops[layer, 0] += 2 * rows * d * d
        self.rows[layer, 2] += rows

    def feed_forward(self, layer: int, rows: int) -> None:
        """The gated feed-forward at `rows` rows."""
        self.flops[layer, 2] += 6 * rows * self.info.d_model * self.info.ffn
        self.rows[layer, 3] += rows

    def unread(self, layer: int, site: str, rows: int) -> None:
        """Rows of a branch, `attn` or `ffn`, that are not computed because nobody reads them."""
        self.rows[layer, SITES.index(site)] += rows

    def head(self, rows: int) -> None:
        """Logits of `rows` rows."""
        self.flops[-1, 3] += 2 * rows * self.info.d_model * self.info.vocab_size

    def select(self, layer: int, amount: int) -> None:
        """Products that a policy spends on its decision."""
        self.flops[layer, 4] += amount

    def guide(self, amount: int) -> None:
        """Products of another model that judges the step."""
        self.flops[-1, PARTS.index("guider")] += amount

    def add(self, other: FlopCounter, times: int = 1) -> None:
        """Take in what another forward of the step spent, `times` over."""
        self.flops += times * other.flops
        self.rows += times * other.rows

    def each(self, rows: int) -> FlopCounter:
        """What is spent on one of `rows` rows a sequence that are all alike."""
        one = FlopCounter(self.info)
        one.flops, one.rows = self.flops // rows, self.rows // rows
        return one

    def recomputed(self) -> float:
        """Token-layers recomputed, as the mean over layers and the four sites, in rows."""
        return float(self.rows.sum()) / self.rows.size

    def parts(self) -> np.ndarray:
        """FLOPs by part, [PARTS] int64."""
        parts: np.ndarray = self.flops.sum(0)
        return parts
