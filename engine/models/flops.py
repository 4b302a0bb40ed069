"""FLOPs of a step by layer and part; a multiply-add counts as two.

Only matrix products count: projections, attention scores and sums, feed-forward, head, and a
policy's own products. Norms, rotations, similarities and sorting do not, as in
torch.utils.flop_counter.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from engine.core.events import PARTS, SITES
from engine.models.base import ModelInfo


@dataclass
class FlopCounter:
    """FLOPs and recomputed rows of one step.

    `flops` [layers + 1, PARTS] holds the head and the guider in its last row. `rows` [layers, 4]
    counts the K, V, attention and FFN rows that a policy recomputes, over all sequences; rows of
    unused branches count too, without FLOPs.
    """

    info: ModelInfo
    flops: np.ndarray = field(init=False)
    rows: np.ndarray = field(init=False)

    def __post_init__(self) -> None:
        self.flops = np.zeros((self.info.layers + 1, len(PARTS)), np.int64)
        self.rows = np.zeros((self.info.layers, len(SITES)), np.int64)

    def project(self, layer: int, names: str, rows: int) -> None:
        """Count the projections `names`, a substring of "qkv", of `rows` rows."""
        width = sum(self.info.d_q if name == "q" else self.info.d_kv for name in names)
        self.flops[layer, 0] += 2 * rows * self.info.d_model * width
        for name in names:
            if name != "q":
                self.rows[layer, "kv".index(name)] += rows

    def attend(self, layer: int, rows: int, keys: int) -> None:
        """Count attention of `rows` queries over `keys` keys each, and its output projection."""
        width = self.info.d_q
        self.flops[layer, 1] += 4 * rows * keys * width
        self.flops[layer, 0] += 2 * rows * width * self.info.d_model
        self.rows[layer, 2] += rows

    def feed_forward(self, layer: int, rows: int) -> None:
        """Count the gated feed-forward of `rows` rows."""
        self.flops[layer, 2] += 6 * rows * self.info.d_model * self.info.ffn
        self.rows[layer, 3] += rows

    def add_unused_rows(self, layer: int, site: str, rows: int) -> None:
        """Count rows of the branch `attn` or `ffn` whose output is unused and not computed."""
        self.rows[layer, SITES.index(site)] += rows

    def head(self, rows: int) -> None:
        """Count the logits of `rows` rows."""
        self.flops[-1, 3] += 2 * rows * self.info.d_model * self.info.vocab_size

    def select(self, layer: int, amount: int) -> None:
        """Count `amount` FLOPs of a policy's own decision."""
        self.flops[layer, 4] += amount

    def guide(self, amount: int) -> None:
        """Count `amount` FLOPs of the guider."""
        self.flops[-1, PARTS.index("guider")] += amount

    def add(self, other: FlopCounter, times: int = 1) -> None:
        """Add the counts of another forward, `times` times."""
        self.flops += times * other.flops
        self.rows += times * other.rows

    def per_row(self, rows: int) -> FlopCounter:
        """The counts of one of `rows` rows per sequence that all cost the same."""
        one = FlopCounter(self.info)
        one.flops, one.rows = self.flops // rows, self.rows // rows
        return one

    def recomputed(self) -> float:
        """Recomputed rows, mean over the layers and the four sites."""
        return float(self.rows.sum()) / self.rows.size

    def parts(self) -> np.ndarray:
        """FLOPs by part, [PARTS] int64."""
        parts: np.ndarray = self.flops.sum(0)
        return parts
