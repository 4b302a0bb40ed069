"""Write a trained network as a checkpoint folder of the LLaDA or the Qwen2 layout."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from engine.tiny import tokenizer
from engine.tiny.network import Shape

HISTORY = "training.json"
TOP = {
    "llada": {
        "embed": "model.transformer.wte.weight", "norm": "model.transformer.ln_f.weight",
        "head": "model.transformer.ff_out.weight",
    },
    "qwen2": {
        "embed": "model.embed_tokens.weight", "norm": "model.norm.weight",
        "head": "lm_head.weight",
    },
}  # fmt: skip
PREFIX = {"llada": "model.transformer.blocks.{}.", "qwen2": "model.layers.{}."}
LAYER = {
    "llada": {
        "norm1": ("attn_norm",), "norm2": ("ff_norm",), "qkv": ("q_proj", "k_proj", "v_proj"),
        "out": ("attn_out",), "gate_up": ("ff_proj", "up_proj"), "down": ("ff_out",),
    },
    "qwen2": {
        "norm1": ("input_layernorm",), "norm2": ("post_attention_layernorm",),
        "qkv": ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"),
        "out": ("self_attn.o_proj",), "gate_up": ("mlp.gate_proj", "mlp.up_proj"),
        "down": ("mlp.down_proj",),
    },
}  # fmt: skip


def tensors(weights: dict[str, Tensor], shape: Shape, family: str) -> dict[str, Tensor]:
    """Name the network's weights as the checkpoints of a family do; Qwen2's biases are zero."""
    out: dict[str, Tensor] = {}
    for name, parts in _names(shape, family).items():
        fused = weights[name] if len(parts) > 1 else weights[name][None]
        out |= dict(zip(parts, fused, strict=True))
    if family == "qwen2":
        triples = (parts for parts in _names(shape, family).values() if len(parts) == 3)
        biased = [part.removesuffix("weight") + "bias" for parts in triples for part in parts]
        out |= {name: torch.zeros(shape.width) for name in biased}
    return out


def read(folder: Path, shape: Shape) -> dict[str, Tensor]:
    """Return the weights of an exported folder under the network's names, in float32."""
    found = load_file(folder / "model.safetensors")
    family = "llada" if TOP["llada"]["embed"] in found else "qwen2"
    stacked = {
        name: torch.stack([found[part].float() for part in parts])
        for name, parts in _names(shape, family).items()
    }
    return {n: t[0] if len(t) == 1 else t for n, t in stacked.items()}


def _names(shape: Shape, family: str) -> dict[str, tuple[str, ...]]:
    """The checkpoint's tensors that make up each of the network's."""
    out: dict[str, tuple[str, ...]] = {ours: (theirs,) for ours, theirs in TOP[family].items()}
    for i in range(shape.layers):
        prefix = PREFIX[family].format(i)
        for ours, theirs in LAYER[family].items():
            out[f"blocks.{i}.{ours}"] = tuple(f"{prefix}{part}.weight" for part in theirs)
    return out


def llada_config(shape: Shape) -> dict[str, Any]:
    """Return `config.json` with the fields of the published LLaDA checkpoints."""
    return {
        "activation_type": "silu",
        "alibi": False,
        "architectures": ["LLaDAModelLM"],
        "attention_dropout": 0.0,
        "attention_layer_norm": False,
        "auto_map": {
            "AutoConfig": "configuration_llada.LLaDAConfig",
            "AutoModel": "modeling_llada.LLaDAModelLM",
            "AutoModelForCausalLM": "modeling_llada.LLaDAModelLM",
        },
        "bias_for_layer_norm": False,
        "block_group_size": 1,
        "block_type": "llama",
        "d_model": shape.width,
        "embedding_dropout": 0.0,
        "embedding_size": shape.vocab,
        "eos_token_id": tokenizer.EOS,
        "flash_attention": False,
        "include_bias": False,
        "include_qkv_bias": False,
        "input_emb_norm": False,
        "layer_norm_type": "rms",
        "layer_norm_with_affine": True,
        "mask_token_id": tokenizer.MASK,
        "max_sequence_length": shape.context,
        "mlp_hidden_size": shape.hidden,
        "mlp_ratio": 4,
        "model_type": "llada",
        "n_heads": shape.heads,
        "n_kv_heads": shape.heads,
        "n_layers": shape.layers,
        "pad_token_id": tokenizer.EOS,
        "precision": "amp_bf16",
        "residual_dropout": 0.0,
        "rms_norm_eps": shape.eps,
        "rope": True,
        "rope_full_precision": True,
        "rope_theta": shape.theta,
        "scale_logits": False,
        "torch_dtype": "bfloat16",
        "use_cache": False,
        "vocab_size": shape.vocab,
        "weight_tying": False,
    }


def qwen2_config(shape: Shape) -> dict[str, Any]:
    """Return `config.json` of a Qwen2 model."""
    return {
        "architectures": ["Qwen2ForCausalLM"],
        "attention_dropout": 0.0,
        "bos_token_id": tokenizer.EOS,
        "eos_token_id": tokenizer.EOT,
        "hidden_act": "silu",
        "hidden_size": shape.width,
        "initializer_range": 0.02,
        "intermediate_size": shape.hidden,
        "max_position_embeddings": shape.context,
        "max_window_layers": shape.layers,
        "model_type": "qwen2",
        "num_attention_heads": shape.heads,
        "num_hidden_layers": shape.layers,
        "num_key_value_heads": shape.heads,
        "pad_token_id": tokenizer.EOS,
        "rms_norm_eps": shape.eps,
        "rope_theta": shape.theta,
        "sliding_window": None,
        "tie_word_embeddings": False,
        "torch_dtype": "bfloat16",
        "use_cache": True,
        "use_sliding_window": False,
        "vocab_size": shape.vocab,
    }


def export(
    weights: dict[str, Tensor],
    shape: Shape,
    family: str,
    folder: Path,
    phases: list[dict[str, Any]],
) -> None:
    """Write tokenizer, config, bfloat16 weights and the phases of the training."""
    config = llada_config if family == "llada" else qwen2_config
    tokenizer.write(folder, family)
    for file, content in (("config.json", config(shape)), (HISTORY, phases)):
        text = json.dumps(content, indent=2) + "\n"
        (folder / file).write_text(text, encoding="utf-8")
    named = tensors(weights, shape, family)
    halves = {name: tensor.to(torch.bfloat16).contiguous() for name, tensor in named.items()}
    part = folder / "model.safetensors.part"
    save_file(halves, part, metadata={"format": "pt"})
    part.chmod(0o644)
    os.replace(part, folder / "model.safetensors")
