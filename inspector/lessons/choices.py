"""The races that the reader of a lesson can choose."""

from __future__ import annotations

from typing import NamedTuple


class Choice(NamedTuple):
    """A race of recorded runs.

    Attributes:
        label: what the reader chooses.
        lane_b: name of the trace in lane B.
        lane_a: name of the trace in lane A; empty for that of the lesson.
    """

    label: str
    lane_b: str
    lane_a: str = ""

    @property
    def name(self) -> str:
        """The name of the choice in requests: `B`, or `A-B` if it names lane A."""
        return f"{self.lane_a}-{self.lane_b}" if self.lane_a else self.lane_b


DLLM_CHOICES = (
    Choice("prompt every 25 steps, answer every 5", "dllm_25_5"),
    Choice("prompt every 25 steps, answer every 50", "dllm_25_50"),
    Choice("prompt every 25, answer every 2, nothing between", "dllm_25_2_0"),
    Choice("prompt every 100, answer every 20, nothing between", "dllm_100_20_0"),
)
THRESHOLD_CHOICES = (
    Choice("0.95", "threshold_95"),
    Choice("0.7", "threshold_70"),
    Choice("0.5", "threshold_50"),
)
GUIDER_CHOICES = (
    Choice("FreeCache only", "freecache_fill_safe"),
    Choice("FreeCache + guider", "freecache_guided"),
    Choice("FreeCache + guider of another vocabulary", "freecache_guided_digits"),
    Choice("Guider only", "guided"),
)
DARE_CHOICES = (
    Choice("DARE-KV", "dare_kv"),
    Choice("DARE-O", "dare_o"),
    Choice("DARE-O, layers 1 and 2 always recomputed", "dare_o_from_layer_3"),
)
RULE_CHOICES = (
    Choice("Plain decoding under both rules", "plain_fill_safe"),
    Choice("Guided, unequal rules", "guided"),
    Choice("Guided, equal rules", "guided", "plain_fill_safe"),
)
