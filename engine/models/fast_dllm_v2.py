"""Fast-dLLM v2: Efficient-Large-Model/Fast_dLLM_v2_7B and _1.5B, and anything in their layout."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from engine.models.base import ModelInfo
from engine.models.loading.config import ConfigFields, integer_field
from engine.models.loading.layout import LLAMA
from engine.models.loading.pretrained import PretrainedAdapter

FIELDS = ConfigFields(
    {
        "hidden_act": "silu", "rope_scaling": None, "use_sliding_window": False,
        "partial_rotary_factor": 1,
    },
    norm_eps=1e-6,
)  # fmt: skip


class FastDllmV2Adapter(PretrainedAdapter):
    """Fast-dLLM v2 (arXiv 2509.26328): Qwen2.5's network with block-causal attention.

    Grouped keys and values, biases on q, k and v; hidden row p predicts token p + 1.
    """

    family = "fast_dllm_v2"
    layouts = (LLAMA,)

    @classmethod
    def read_info(cls, config: Mapping[str, Any], stop_ids: tuple[int, ...] = ()) -> ModelInfo:
        """See PretrainedAdapter.read_info."""
        info = FIELDS.read(config, cls.family, stop_ids, logit_shift=1, qkv_bias=True)
        size = integer_field(config, "bd_size", 1, info.max_length + 1)
        return replace(info, attention="block_causal", block_size=size, block_sizes=(size,))
