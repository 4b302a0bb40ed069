"""LLaDA: GSAI-ML/LLaDA-8B-Base, -Instruct and LLaDA-1.5, and anything in their layout."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from engine.models.base import ModelInfo
from engine.models.config import Fields, whole
from engine.models.layout import LLAMA, Layout
from engine.models.pretrained import Pretrained

FIELDS = Fields(
    layers="n_layers",
    d_model="d_model",
    n_heads="n_heads",
    n_kv_heads="n_kv_heads",
    ffn="mlp_hidden_size",
    max_length="max_sequence_length",
    tied="weight_tying",
    required={
        "alibi": False, "rope": True, "include_bias": False, "include_qkv_bias": False,
        "attention_layer_norm": False, "layer_norm_type": "rms", "block_type": "llama",
        "activation_type": "silu", "input_emb_norm": False, "scale_logits": False,
    },
    norm_eps=1e-5,
)  # fmt: skip
OWN = Layout(
    embedding="model.transformer.wte.weight",
    norm="model.transformer.ln_f.weight",
    head="model.transformer.ff_out.weight",
    block="model.transformer.blocks.{}.",
    leaves={
        "attn_norm": ("attn_norm",),
        "ff_norm": ("ff_norm",),
        "qkv.weight": ("q_proj", "k_proj", "v_proj"),
        "out.weight": ("attn_out",),
        "gate_up.weight": ("ff_proj", "up_proj"),
        "down.weight": ("ff_out",),
    },
)


class LladaAdapter(Pretrained):
    """LLaDA on its own modules: bidirectional, no biases, logits unshifted.

    Tensors may have its own names or those that LLaDA-V's converter gives them.
    """

    family = "llada"
    layouts = (OWN, LLAMA)

    @classmethod
    def read_info(cls, config: Mapping[str, Any], stop_ids: tuple[int, ...] = ()) -> ModelInfo:
        """As Pretrained has it."""
        info = FIELDS.read(config, cls.family, stop_ids)
        cls.embedding_rows(config, info)
        return info

    @classmethod
    def embedding_rows(cls, config: Mapping[str, Any], info: ModelInfo) -> int:
        """`embedding_size`, which pads the vocabulary; without it the vocabulary's size."""
        if not config.get("embedding_size"):
            return info.vocab_size
        return whole(config, "embedding_size", info.vocab_size)
