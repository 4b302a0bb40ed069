"""LLaDA-MoE: LLaDA-MoE-7B-A1B-Base and -Instruct, and anything in their layouts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from engine.models.base import ModelInfo
from engine.models.loading.config import ConfigFields, check_values, experts_fields
from engine.models.loading.layout import LLAMA_QK_NORM
from engine.models.loading.pretrained import PretrainedAdapter

FIELDS = ConfigFields(
    {
        "hidden_act": "silu", "attention_bias": False, "clip_qkv": None, "rope_scaling": None,
        "partial_rotary_factor": 1, "qk_layernorm": True, "moe_router_score_function": "softmax",
        "moe_router_enable_expert_bias": False, "shared_expert_intermediate_size": None,
        "routed_scaling_factor": 1, "router_num_group": None, "router_topk_group": None,
    },
    norm_eps=1e-5,
    ffn="expert_intermediate_size",
)  # fmt: skip
ROUTER = {"feed_forward.router.weight": ("mlp.gate.weight",)}
SINGLE_EXPERTS = {
    "feed_forward.gate_up.weight": (
        "mlp.experts.{}.gate_proj.weight", "mlp.experts.{}.up_proj.weight",
    ),
    "feed_forward.down.weight": ("mlp.experts.{}.down_proj.weight",),
}  # fmt: skip
# dInfer's converted copies: `w1` [experts, 2 ffn, d_model], gate over up, and `w2`.
STACKED_EXPERTS = {
    "feed_forward.gate_up.weight": ("mlp.w1",),
    "feed_forward.down.weight": ("mlp.w2",),
}


class LladaMoeAdapter(PretrainedAdapter):
    """LLaDA-MoE: LLaDA with experts in every layer and with normed queries and keys.

    Each row uses the experts of largest softmax probability, with these probabilities as weights:
    they are not renormalised, and no expert is shared. Decoding is LLaDA's.
    """

    family = "llada_moe"
    layouts = (
        replace(LLAMA_QK_NORM, experts=ROUTER | SINGLE_EXPERTS),
        replace(LLAMA_QK_NORM, experts=ROUTER | STACKED_EXPERTS),
    )

    @classmethod
    def read_info(cls, config: Mapping[str, Any], stop_ids: tuple[int, ...] = ()) -> ModelInfo:
        """See PretrainedAdapter.read_info."""
        info = FIELDS.read(config, cls.family, stop_ids)
        # The published code never renormalises; null and false say the same.
        check_values(config, {"norm_topk_prob": (None, False)})
        check_values(config, {"moe_layer_freq": (None, [1] * info.layers)})
        experts = experts_fields(config, "expert_intermediate_size")
        return replace(info, ffn=experts.active_ffn, qk_norm=True, experts=experts)
