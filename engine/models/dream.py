"""Dream: Dream-org/Dream-v0-Base-7B and -Instruct-7B, and anything in their layout."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from engine.models.base import ModelInfo
from engine.models.loading.config import ConfigFields
from engine.models.loading.layout import LLAMA
from engine.models.loading.pretrained import PretrainedAdapter

FIELDS = ConfigFields(
    {
        "hidden_act": "silu", "rope_scaling": None, "use_sliding_window": False,
        "use_mrope": False, "full_attn": True, "partial_rotary_factor": 1,
    },
    norm_eps=1e-6,
    max_context=2048,
    foreign=("num_experts", "block_size", "bd_size"),
)  # fmt: skip


class DreamAdapter(PretrainedAdapter):
    """Dream (arXiv 2508.15487): Qwen2.5's network with bidirectional attention.

    Grouped keys and values, biases on q, k and v; hidden row p predicts token p + 1.
    """

    family = "dream"
    layouts = (LLAMA,)

    @classmethod
    def read_info(cls, config: Mapping[str, Any], stop_ids: tuple[int, ...] = ()) -> ModelInfo:
        """See PretrainedAdapter.read_info; training used contexts of 2,048 positions."""
        return FIELDS.read(config, cls.family, stop_ids, logit_shift=1, qkv_bias=True)
