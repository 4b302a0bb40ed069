"""LLaDA: LLaDA-8B-Base and -Instruct, LLaDA-1.5 and LLaDA-V, and anything in their layouts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from engine.models.base import ModelInfo
from engine.models.loading.config import Fields, llama_fields, whole
from engine.models.loading.layout import LLAMA, Layout
from engine.models.loading.pretrained import Pretrained

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
LLAMA_FIELDS = llama_fields({"attention_bias": False, "mlp_bias": False}, norm_eps=1e-5)
# What LLaDA-V sees with: its vision tower, and what turns that tower's output into embeddings.
# No text passes through them, and the engine's canvases are text.
VISION = ("model.vision_tower.", "model.mm_projector.", "model.vision_resampler.",
          "model.image_newline")  # fmt: skip
OWN = Layout(
    embedding="model.transformer.wte.weight",
    norm="model.transformer.ln_f.weight",
    head="model.transformer.ff_out.weight",
    block="model.transformer.blocks.{}.",
    leaves={
        "attn_norm.weight": ("attn_norm",),
        "ff_norm.weight": ("ff_norm",),
        "qkv.weight": ("q_proj", "k_proj", "v_proj"),
        "out.weight": ("attn_out",),
        "gate_up.weight": ("ff_proj", "up_proj"),
        "down.weight": ("ff_out",),
    },
)


class LladaAdapter(Pretrained):
    """LLaDA on its own modules: bidirectional, no biases, logits unshifted.

    Config and tensors may have its own names or those that LLaDA-V's converter gives them; of
    LLaDA-V the language model is read, its eyes are left out.
    """

    family = "llada"
    layouts = (OWN, replace(LLAMA, skipped=VISION))

    @classmethod
    def read_info(cls, config: Mapping[str, Any], stop_ids: tuple[int, ...] = ()) -> ModelInfo:
        """As Pretrained has it."""
        own = "d_model" in config or "hidden_size" not in config
        info = (FIELDS if own else LLAMA_FIELDS).read(config, cls.family, stop_ids)
        cls.embedding_rows(config, info)
        return info

    @classmethod
    def embedding_rows(cls, config: Mapping[str, Any], info: ModelInfo) -> int:
        """`embedding_size`, which pads the vocabulary; without it the vocabulary's size."""
        if not config.get("embedding_size"):
            return info.vocab_size
        return whole(config, "embedding_size", info.vocab_size)
