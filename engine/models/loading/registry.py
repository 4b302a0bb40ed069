"""The models that can be chosen by name, each with licence, sizes and presets."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from engine.config.presets import (
    DIFFUCODER_BASE,
    DIFFUCODER_CPGRPO,
    DIFFUCODER_INSTRUCT,
    DREAM_BASE,
    DREAM_CODER_BASE,
    DREAM_CODER_INSTRUCT,
    DREAM_INSTRUCT,
    FAST_DLLM_V2,
    LLADA2,
    LLADA_1_5,
    LLADA_BASE,
    LLADA_INSTRUCT,
    LLADA_MOE_BASE,
    LLADA_MOE_INSTRUCT,
    LLADA_V,
    MMADA,
    SDAR,
    TINY_BLOCK,
    TINY_DREAM,
    TINY_LLADA,
    Preset,
)

LLADA_8B: Mapping[str, Any] = MappingProxyType({
    "model_type": "llada", "d_model": 4096, "n_layers": 32, "n_heads": 32, "n_kv_heads": 32,
    "mlp_hidden_size": 12288, "vocab_size": 126464, "embedding_size": 126464,
    "max_sequence_length": 4096, "block_type": "llama", "activation_type": "silu",
    "layer_norm_type": "rms", "rms_norm_eps": 1e-5, "rope": True, "rope_theta": 500000.0,
    "alibi": False, "include_bias": False, "include_qkv_bias": False, "input_emb_norm": False,
    "attention_layer_norm": False, "weight_tying": False, "scale_logits": False,
    "mask_token_id": 126336, "eos_token_id": 126081, "pad_token_id": 126081,
})  # fmt: skip
MMADA_8B: Mapping[str, Any] = MappingProxyType({
    **LLADA_8B, "model_type": "mmada", "vocab_size": 134656, "embedding_size": 134656,
    "new_vocab_size": 134656, "llm_vocab_size": 126464, "codebook_size": 8192,
    "num_new_special_tokens": 0,
})  # fmt: skip
LLADA_V_8B: Mapping[str, Any] = MappingProxyType({
    "model_type": "llava_llada", "hidden_size": 4096, "num_hidden_layers": 32,
    "num_attention_heads": 32, "num_key_value_heads": 32, "intermediate_size": 12288,
    "hidden_act": "silu", "rms_norm_eps": 1e-5, "rope_theta": 500000.0, "rope_scaling": None,
    "vocab_size": 126464, "tie_word_embeddings": False, "max_position_embeddings": 16384,
    "attention_bias": False, "mask_token_id": 126336, "eos_token_id": 126081,
    "suppressed_token_ids": (126080, 126081, 126346, 126347),
    "mm_vision_tower": "siglip2-so400m-patch14-384", "mm_projector_type": "mlp2x_gelu",
    "mm_patch_merge_type": "spatial_unpad", "image_aspect_ratio": "anyres_max_4",
    "image_grid_pinpoints": "(1x1),...,(6x6)", "tokenizer_model_max_length": 8192,
})  # fmt: skip
SIGLIP_SO400M = {"layers": 26, "width": 1152, "ffn": 4304}
DREAM_7B: Mapping[str, Any] = MappingProxyType({
    "model_type": "Dream", "hidden_size": 3584, "num_hidden_layers": 28,
    "num_attention_heads": 28, "num_key_value_heads": 4, "intermediate_size": 18944,
    "hidden_act": "silu", "rms_norm_eps": 1e-6, "rope_theta": 1000000.0, "rope_scaling": None,
    "vocab_size": 152064, "tie_word_embeddings": False, "max_position_embeddings": 131072,
    "use_sliding_window": False, "mask_token_id": 151666, "bos_token_id": 151643,
    "eos_token_id": 151643, "pad_token_id": 151643,
})  # fmt: skip
LLADA_MOE_7B: Mapping[str, Any] = MappingProxyType({
    "architectures": ["LLaDAMoEModelLM"], "model_type": "llada", "hidden_size": 2048,
    "num_hidden_layers": 16, "num_attention_heads": 16, "num_key_value_heads": 16,
    "num_experts": 64, "num_experts_per_tok": 8, "expert_intermediate_size": 1024,
    "shared_expert_intermediate_size": None, "moe_router_score_function": "softmax",
    "moe_router_enable_expert_bias": False, "norm_topk_prob": None, "routed_scaling_factor": 1,
    "hidden_act": "silu", "rms_norm_eps": 1e-5, "rope_theta": 50000.0, "rope_scaling": None,
    "partial_rotary_factor": 1, "qk_layernorm": True, "attention_bias": False, "clip_qkv": None,
    "vocab_size": 157184, "tie_word_embeddings": False, "max_position_embeddings": 8192,
    "mask_token_id": 156895, "eos_token_id": 156892, "pad_token_id": 156892,
})  # fmt: skip
LLADA2_MINI: Mapping[str, Any] = MappingProxyType({
    "architectures": ["LLaDA2MoeModelLM"], "model_type": "llada2_moe", "hidden_size": 2048,
    "num_hidden_layers": 20, "num_attention_heads": 16, "num_key_value_heads": 4, "head_dim": 128,
    "intermediate_size": 5120, "first_k_dense_replace": 1, "num_experts": 256,
    "num_experts_per_tok": 8, "moe_intermediate_size": 512, "num_shared_experts": 1,
    "n_group": 8, "topk_group": 4, "routed_scaling_factor": 2.5, "score_function": "sigmoid",
    "moe_router_enable_expert_bias": True, "norm_topk_prob": True, "hidden_act": "silu",
    "rms_norm_eps": 1e-6, "rope_theta": 600000.0, "rope_scaling": None,
    "partial_rotary_factor": 0.5, "use_qk_norm": True, "use_qkv_bias": False, "use_bias": False,
    "vocab_size": 157184, "tie_word_embeddings": False, "max_position_embeddings": 32768,
    "mask_token_id": 156895, "eos_token_id": 156892, "pad_token_id": 156892,
})  # fmt: skip
# Some configs of SDAR lack the block size or the mask, which its tokenizer names.
SDAR_8B: Mapping[str, Any] = MappingProxyType({
    "model_type": "sdar", "hidden_size": 4096, "num_hidden_layers": 36, "num_attention_heads": 32,
    "num_key_value_heads": 8, "head_dim": 128, "intermediate_size": 12288, "hidden_act": "silu",
    "rms_norm_eps": 1e-6, "rope_theta": 1000000.0, "rope_scaling": None, "attention_bias": False,
    "vocab_size": 151936, "tie_word_embeddings": False, "max_position_embeddings": 32768,
    "use_sliding_window": False, "mask_token_id": 151669, "eos_token_id": 151643,
    "block_size": 4,
})  # fmt: skip
SDAR_4B: Mapping[str, Any] = MappingProxyType(
    {**SDAR_8B, "hidden_size": 2560, "intermediate_size": 9728}
)
SDAR_1_7B: Mapping[str, Any] = MappingProxyType({
    **SDAR_8B, "hidden_size": 2048, "num_hidden_layers": 28, "num_attention_heads": 16,
    "intermediate_size": 6144,
})  # fmt: skip
FAST_DLLM_V2_7B: Mapping[str, Any] = MappingProxyType({
    "model_type": "Fast_dLLM_Qwen", "hidden_size": 3584, "num_hidden_layers": 28,
    "num_attention_heads": 28, "num_key_value_heads": 4, "intermediate_size": 18944,
    "hidden_act": "silu", "rms_norm_eps": 1e-6, "rope_theta": 1000000.0, "rope_scaling": None,
    "vocab_size": 152064, "tie_word_embeddings": False, "max_position_embeddings": 32768,
    "use_sliding_window": False, "mask_token_id": 151665, "eos_token_id": 151645,
    "pad_token_id": 151645, "bd_size": 32,
})  # fmt: skip
FAST_DLLM_V2_1_5B: Mapping[str, Any] = MappingProxyType({
    **FAST_DLLM_V2_7B, "hidden_size": 1536, "num_attention_heads": 12, "num_key_value_heads": 2,
    "intermediate_size": 8960, "vocab_size": 151936, "tie_word_embeddings": True,
})  # fmt: skip
# Of DiffuCoder's examples: a line break stands between the user's text and the end of the turn.
DIFFUCODER_TEMPLATE = (
    "{% if messages[0].role != 'system' %}"
    "{{ '<|im_start|>system\nYou are a helpful assistant.<|im_end|>\n' }}{% endif %}"
    "{% for message in messages %}{{ '<|im_start|>' + message.role + '\n' }}"
    "{% if message.role == 'user' %}{{ message.content | trim + '\n' }}"
    "{% else %}{{ message.content }}{% endif %}{{ '<|im_end|>\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)


@dataclass(frozen=True)
class ModelCard:
    """A model that can be chosen by name, on a public page too.

    `config` holds the network's fields of the published `config.json`, which give sizes, context
    and memory before a download. It is empty for the embedded models under `assets/models`.
    `template` is the chat template of the authors' examples, if it is not the tokenizer's.
    `tower` are the sizes of the vision tower of a model that takes images.
    """

    name: str
    title: str
    licence: str
    presets: tuple[Preset, ...]
    config: Mapping[str, Any] = field(default_factory=dict, hash=False)
    template: str = ""
    tower: Mapping[str, int] = field(default_factory=dict, hash=False)

    @property
    def embedded(self) -> bool:
        """Whether the repository contains the model."""
        return not self.config


REGISTERED: Mapping[str, ModelCard] = MappingProxyType({
    model.name: model
    for model in (
        ModelCard("tiny-llada", "Tiny LLaDA", "MIT", TINY_LLADA),
        ModelCard("tiny-dream", "Tiny Dream", "MIT", TINY_DREAM),
        ModelCard("tiny-block", "Tiny block diffusion", "MIT", TINY_BLOCK),
        ModelCard(
            "GSAI-ML/LLaDA-8B-Instruct", "LLaDA 8B Instruct", "MIT", LLADA_INSTRUCT, LLADA_8B
        ),
        ModelCard("GSAI-ML/LLaDA-1.5", "LLaDA 1.5", "MIT", LLADA_1_5, LLADA_8B),
        ModelCard("GSAI-ML/LLaDA-8B-Base", "LLaDA 8B Base", "MIT", LLADA_BASE, LLADA_8B),
        ModelCard("Gen-Verse/MMaDA-8B-MixCoT", "MMaDA 8B MixCoT", "MIT", MMADA, MMADA_8B),
        ModelCard("Gen-Verse/MMaDA-8B-Base", "MMaDA 8B Base", "MIT", MMADA, MMADA_8B),
        ModelCard(
            "GSAI-ML/LLaDA-V", "LLaDA-V 8B, takes images", "licence not stated", LLADA_V,
            LLADA_V_8B, tower=SIGLIP_SO400M,
        ),
        ModelCard(
            "Dream-org/Dream-v0-Instruct-7B", "Dream 7B Instruct", "Apache-2.0", DREAM_INSTRUCT,
            DREAM_7B,
        ),
        ModelCard(
            "Dream-org/Dream-v0-Base-7B", "Dream 7B Base", "Apache-2.0", DREAM_BASE, DREAM_7B
        ),
        ModelCard(
            "Dream-org/Dream-Coder-v0-Instruct-7B", "Dream-Coder 7B Instruct", "Apache-2.0",
            DREAM_CODER_INSTRUCT, DREAM_7B,
        ),
        ModelCard(
            "Dream-org/Dream-Coder-v0-Base-7B", "Dream-Coder 7B Base", "Apache-2.0",
            DREAM_CODER_BASE, DREAM_7B,
        ),
        ModelCard(
            "apple/DiffuCoder-7B-cpGRPO", "DiffuCoder 7B cpGRPO", "apple-amlr", DIFFUCODER_CPGRPO,
            DREAM_7B, DIFFUCODER_TEMPLATE,
        ),
        ModelCard(
            "apple/DiffuCoder-7B-Instruct", "DiffuCoder 7B Instruct", "apple-amlr",
            DIFFUCODER_INSTRUCT, DREAM_7B, DIFFUCODER_TEMPLATE,
        ),
        ModelCard(
            "apple/DiffuCoder-7B-Base", "DiffuCoder 7B Base", "apple-amlr", DIFFUCODER_BASE,
            DREAM_7B,
        ),
        ModelCard(
            "inclusionAI/LLaDA-MoE-7B-A1B-Instruct", "LLaDA-MoE 7B-A1B Instruct", "Apache-2.0",
            LLADA_MOE_INSTRUCT, LLADA_MOE_7B,
        ),
        ModelCard(
            "inclusionAI/LLaDA-MoE-7B-A1B-Base", "LLaDA-MoE 7B-A1B Base", "Apache-2.0",
            LLADA_MOE_BASE, LLADA_MOE_7B,
        ),
        ModelCard(
            "inclusionAI/LLaDA2.0-mini", "LLaDA2.0 mini", "Apache-2.0", LLADA2, LLADA2_MINI
        ),
        ModelCard("JetLM/SDAR-8B-Chat", "SDAR 8B Chat", "MIT", SDAR, SDAR_8B),
        ModelCard("JetLM/SDAR-4B-Chat", "SDAR 4B Chat", "MIT", SDAR, SDAR_4B),
        ModelCard("JetLM/SDAR-1.7B-Chat", "SDAR 1.7B Chat", "MIT", SDAR, SDAR_1_7B),
        ModelCard(
            "Efficient-Large-Model/Fast_dLLM_v2_7B", "Fast-dLLM v2 7B", "Apache-2.0",
            FAST_DLLM_V2, FAST_DLLM_V2_7B,
        ),
        ModelCard(
            "Efficient-Large-Model/Fast_dLLM_v2_1.5B", "Fast-dLLM v2 1.5B", "Apache-2.0",
            FAST_DLLM_V2, FAST_DLLM_V2_1_5B,
        ),
    )
})  # fmt: skip


def is_embedded(name: str) -> bool:
    """Whether the repository contains a model of this name."""
    return name in REGISTERED and REGISTERED[name].embedded


def describe_name(name: str) -> dict[str, Any]:
    """The fields of ModelPool.describe, with the values of those that need no config."""
    known = REGISTERED.get(name)
    return {
        "name": name, "title": known.title if known else name,
        "licence": known.licence if known else "", "embedded": is_embedded(name),
        "registered": known is not None, "available": False, "family": "",
        "max_length": 0, "parameters": 0, "active_parameters": 0, "fetch_bytes": 0,
        "presets": [preset.to_dict() for preset in known.presets] if known else [],
        "images": False, "image_problem": "", "attention": "", "block_sizes": [],
    }  # fmt: skip
