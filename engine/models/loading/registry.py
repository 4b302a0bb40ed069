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
    LLADA_1_5,
    LLADA_BASE,
    LLADA_INSTRUCT,
    MMADA,
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
DREAM_7B: Mapping[str, Any] = MappingProxyType({
    "model_type": "Dream", "hidden_size": 3584, "num_hidden_layers": 28,
    "num_attention_heads": 28, "num_key_value_heads": 4, "intermediate_size": 18944,
    "hidden_act": "silu", "rms_norm_eps": 1e-6, "rope_theta": 1000000.0, "rope_scaling": None,
    "vocab_size": 152064, "tie_word_embeddings": False, "max_position_embeddings": 131072,
    "use_sliding_window": False, "mask_token_id": 151666, "bos_token_id": 151643,
    "eos_token_id": 151643, "pad_token_id": 151643,
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
    """

    name: str
    title: str
    licence: str
    presets: tuple[Preset, ...]
    config: Mapping[str, Any] = field(default_factory=dict, hash=False)
    template: str = ""

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
        ModelCard("Gen-Verse/MMaDA-8B-MixCoT", "MMaDA 8B MixCoT", "MIT", MMADA, MMADA_8B),
        ModelCard("Gen-Verse/MMaDA-8B-Base", "MMaDA 8B Base", "MIT", MMADA, MMADA_8B),
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
    )
})  # fmt: skip
