"""LLaDA2.0: LLaDA2.0-mini, and anything in its layout."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from engine.models.base import ModelInfo
from engine.models.feed_forward import ExpertsInfo
from engine.models.llada_moe import ROUTER, SINGLE_EXPERTS
from engine.models.loading.checkpoint import CheckpointError
from engine.models.loading.config import (
    ConfigFields,
    experts_fields,
    integer_field,
    positive_field,
)
from engine.models.loading.layout import LLAMA, Layout
from engine.models.loading.pretrained import PretrainedAdapter

BLOCK_SIZE = 32  # of the published decoding; config.json has no field for it
FIELDS = ConfigFields(
    {
        "hidden_act": "silu", "use_bias": False, "use_qkv_bias": False, "use_qk_norm": True,
        "rope_scaling": None, "use_sliding_window": False, "norm_head": False,
        "score_function": "sigmoid", "moe_router_enable_expert_bias": True,
        "norm_topk_prob": True,
    },
    norm_eps=1e-6,
)  # fmt: skip
LLADA2 = Layout(
    embedding="model.word_embeddings.weight",
    norm=LLAMA.norm,
    head=LLAMA.head,
    block=LLAMA.block,
    leaves={
        "attn_norm.weight": ("input_layernorm",),
        "ff_norm.weight": ("post_attention_layernorm",),
        "qkv.weight": ("attention.query_key_value",),
        "q_norm.weight": ("attention.query_layernorm",),
        "k_norm.weight": ("attention.key_layernorm",),
        "out.weight": ("attention.dense",),
        "feed_forward.gate_up.weight": ("mlp.gate_proj", "mlp.up_proj"),
        "feed_forward.down.weight": ("mlp.down_proj",),
    },
    experts=ROUTER
    | SINGLE_EXPERTS
    | {
        "feed_forward.router.bias": ("mlp.gate.expert_bias",),
        "feed_forward.shared.gate_up.weight": (
            "mlp.shared_experts.gate_proj.weight",
            "mlp.shared_experts.up_proj.weight",
        ),
        "feed_forward.shared.down.weight": ("mlp.shared_experts.down_proj.weight",),
    },
)


class Llada2Adapter(PretrainedAdapter):
    """LLaDA2.0: block-causal attention, normed and partly rotated heads, many experts.

    The first layers are dense. In the others, each row uses a shared expert and the experts that a
    sigmoid router with groups chooses (feed_forward.SigmoidRouter).
    """

    family = "llada2"
    layouts = (LLADA2,)

    @classmethod
    def read_info(cls, config: Mapping[str, Any], stop_ids: tuple[int, ...] = ()) -> ModelInfo:
        """See PretrainedAdapter.read_info; without `eos_token_id`, the padding ends a text."""
        if config.get("eos_token_id") is None:
            config = {**config, "eos_token_id": config.get("pad_token_id")}
        info = FIELDS.read(config, cls.family, stop_ids)
        factor = positive_field(config, "partial_rotary_factor", 1.0)
        rotated = info.head_dim * factor
        if rotated % 2 or rotated > info.head_dim:
            raise CheckpointError(
                f"config.json: partial_rotary_factor is {factor:g}, which turns {rotated:g} of "
                f"{info.head_dim} values of a head; an even number of them expected"
            )
        shared = integer_field(config, "num_shared_experts", 1, 1024)
        experts = experts_fields(config, "moe_intermediate_size")
        experts = replace(
            experts,
            shared_ffn=shared * experts.ffn,
            dense_layers=integer_field(config, "first_k_dense_replace", 0, info.layers + 1),
            router="sigmoid",
            groups=integer_field(config, "n_group", 1, experts.count + 1),
            active_groups=integer_field(config, "topk_group", 1, experts.count + 1),
            scale=positive_field(config, "routed_scaling_factor", 1.0),
        )
        _check_groups(experts)
        return replace(
            info, rotary_dim=int(rotated), qk_norm=True, experts=experts,
            attention="block_causal", block_size=BLOCK_SIZE, block_sizes=(BLOCK_SIZE,),
        )  # fmt: skip


def _check_groups(experts: ExpertsInfo) -> None:
    """Raise CheckpointError if the groups cannot give every row its experts."""
    size, rest = divmod(experts.count, experts.groups)
    if rest or size < 2:
        raise CheckpointError(
            f"config.json: n_group is {experts.groups}; it must divide num_experts, "
            f"{experts.count}, into groups of two or more"
        )
    if experts.active_groups > experts.groups or experts.active > experts.active_groups * size:
        raise CheckpointError(
            f"config.json: topk_group is {experts.active_groups}; at most n_group, "
            f"{experts.groups}, with num_experts_per_tok, {experts.active}, experts expected"
        )
