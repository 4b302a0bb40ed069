"""LLaDA: LLaDA-8B-Base and -Instruct, LLaDA-1.5 and LLaDA-V, and anything in their layouts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, ClassVar

from engine.models.base import ModelInfo
from engine.models.loading.config import ConfigFields, integer_field
from engine.models.loading.layout import LLAMA, Layout
from engine.models.loading.pretrained import PretrainedAdapter

FIELDS = ConfigFields(
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
    foreign=("num_experts", "llm_vocab_size"),
)  # fmt: skip
LLAMA_FIELDS = ConfigFields(
    {
        "hidden_act": "silu", "rope_scaling": None, "attention_bias": False, "mlp_bias": False,
        "partial_rotary_factor": 1,
    },
    norm_eps=1e-5,
    foreign=("num_experts",),
)  # fmt: skip
# LLaDA-V's vision tower and its projection to embeddings; text does not use them.
VISION = ("model.vision_tower.", "model.mm_projector.", "model.vision_resampler.",
          "model.image_newline")  # fmt: skip
LLADA = Layout(
    embedding="model.transformer.wte.weight",
    norm="model.transformer.ln_f.weight",
    head="model.transformer.ff_out.weight",
    block="model.transformer.blocks.{}.",
    leaves={
        "attn_norm.weight": ("attn_norm",),
        "ff_norm.weight": ("ff_norm",),
        "qkv.weight": ("q_proj", "k_proj", "v_proj"),
        "out.weight": ("attn_out",),
        "feed_forward.gate_up.weight": ("ff_proj", "up_proj"),
        "feed_forward.down.weight": ("ff_out",),
    },
)


class LladaAdapter(PretrainedAdapter):
    """LLaDA (arXiv 2502.09992): bidirectional, no biases, logits unshifted.

    Config and tensors may use LLaDA's own names or Llama's, as LLaDA-V does. Only the language
    model of LLaDA-V is read.
    """

    family = "llada"
    layouts: ClassVar[tuple[Layout, ...]] = (LLADA, replace(LLAMA, skipped=VISION))

    @classmethod
    def read_info(cls, config: Mapping[str, Any], stop_ids: tuple[int, ...] = ()) -> ModelInfo:
        """See PretrainedAdapter.read_info."""
        own = "d_model" in config or "hidden_size" not in config
        info = (FIELDS if own else LLAMA_FIELDS).read(config, cls.family, stop_ids)
        cls.embedding_rows(config, info)
        return info

    @classmethod
    def embedding_rows(cls, config: Mapping[str, Any], info: ModelInfo) -> int:
        """`embedding_size`, which may exceed the vocabulary; without it the vocabulary size."""
        if not config.get("embedding_size"):
            return info.vocab_size
        return integer_field(config, "embedding_size", info.vocab_size)
