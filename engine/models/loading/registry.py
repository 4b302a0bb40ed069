"""The models that can be chosen by name, each with licence, sizes and presets."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from engine.config.presets import (
    DREAM_BASE,
    DREAM_INSTRUCT,
    LLADA_1_5,
    LLADA_BASE,
    LLADA_INSTRUCT,
    LLADA_V,
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


@dataclass(frozen=True)
class ModelCard:
    """A model that can be chosen by name, on a public page too.

    `config` holds the network's fields of the published `config.json`, which give sizes, context
    and memory before a download. It is empty for the embedded models under `assets/models`.
    `tower` are the sizes of the vision tower of a model that takes images.
    """

    name: str
    title: str
    licence: str
    presets: tuple[Preset, ...]
    config: Mapping[str, Any] = field(default_factory=dict, hash=False)
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
        ModelCard(
            "GSAI-ML/LLaDA-8B-Instruct", "LLaDA 8B Instruct", "MIT", LLADA_INSTRUCT, LLADA_8B
        ),
        ModelCard("GSAI-ML/LLaDA-1.5", "LLaDA 1.5", "MIT", LLADA_1_5, LLADA_8B),
        ModelCard("GSAI-ML/LLaDA-8B-Base", "LLaDA 8B Base", "MIT", LLADA_BASE, LLADA_8B),
        ModelCard(
            "GSAI-ML/LLaDA-V", "LLaDA-V 8B, takes images", "licence not stated", LLADA_V,
            LLADA_V_8B, SIGLIP_SO400M,
        ),
        ModelCard(
            "Dream-org/Dream-v0-Instruct-7B", "Dream 7B Instruct", "Apache-2.0", DREAM_INSTRUCT,
            DREAM_7B,
        ),
        ModelCard(
            "Dream-org/Dream-v0-Base-7B", "Dream 7B Base", "Apache-2.0", DREAM_BASE, DREAM_7B
        ),
    )
})  # fmt: skip
