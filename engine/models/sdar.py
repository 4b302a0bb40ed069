"""SDAR: JetLM/SDAR-1.7B-Chat, -4B-Chat and -8B-Chat, and anything in their layout."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from engine.models.base import ModelInfo
from engine.models.loading.config import ConfigFields, integer_field
from engine.models.loading.layout import LLAMA_QK_NORM
from engine.models.loading.pretrained import PretrainedAdapter

FIELDS = ConfigFields(
    {
        "hidden_act": "silu", "rope_scaling": None, "attention_bias": False,
        "use_sliding_window": False, "partial_rotary_factor": 1,
    },
    norm_eps=1e-6,
)  # fmt: skip
BLOCK_SIZE, BLOCK_SIZES = 4, (4, 8, 16, 32, 64)  # default, and those of published checkpoints


class SdarAdapter(PretrainedAdapter):
    """SDAR (arXiv 2510.06303): Qwen3's network with block-causal attention.

    Grouped keys and values, normed queries and keys, no biases, logits unshifted. Checkpoints are
    published for several block sizes, and not every config names its own.
    """

    family = "sdar"
    layouts = (LLAMA_QK_NORM,)

    @classmethod
    def read_info(cls, config: Mapping[str, Any], stop_ids: tuple[int, ...] = ()) -> ModelInfo:
        """See PretrainedAdapter.read_info."""
        info, size = FIELDS.read(config, cls.family, stop_ids), BLOCK_SIZE
        if config.get("block_size") is not None:
            size = integer_field(config, "block_size", 1, info.max_length + 1)
        sizes = tuple(sorted({size, *BLOCK_SIZES}))
        return replace(
            info, qk_norm=True, attention="block_causal", block_size=size, block_sizes=sizes
        )
