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


def llada_tensors(weights: dict[str, Tensor], shape: Shape) -> dict[str, Tensor]:
    """Name the weights as LLaDA checkpoints do."""
    top = "model.transformer."
    out = {
        f"{top}wte.weight": weights["embed"],
        f"{top}ln_f.weight": weights["norm"],
        f"{top}ff_out.weight": weights["head"],
    }
    for i in range(shape.layers):
        old, new = f"blocks.{i}.", f"{top}blocks.{i}."
        out[f"{new}attn_norm.weight"] = weights[f"{old}norm1"]
        out[f"{new}ff_norm.weight"] = weights[f"{old}norm2"]
        for name, part in zip(("q_proj", "k_proj", "v_proj"), weights[f"{old}qkv"], strict=True):
            out[f"{new}{name}.weight"] = part
        out[f"{new}attn_out.weight"] = weights[f"{old}out"]
        out[f"{new}ff_proj.weight"], out[f"{new}up_proj.weight"] = weights[f"{old}gate_up"]
        out[f"{new}ff_out.weight"] = weights[f"{old}down"]
    return out


def qwen2_tensors(weights: dict[str, Tensor], shape: Shape) -> dict[str, Tensor]:
    """Name the weights as Qwen2 checkpoints do, with zero biases."""
    out = {
        "model.embed_tokens.weight": weights["embed"],
        "model.norm.weight": weights["norm"],
        "lm_head.weight": weights["head"],
    }
    for i in range(shape.layers):
        old, new = f"blocks.{i}.", f"model.layers.{i}."
        out[f"{new}input_layernorm.weight"] = weights[f"{old}norm1"]
        out[f"{new}post_attention_layernorm.weight"] = weights[f"{old}norm2"]
        for name, part in zip("qkv", weights[f"{old}qkv"], strict=True):
            out[f"{new}self_attn.{name}_proj.weight"] = part
            out[f"{new}self_attn.{name}_proj.bias"] = torch.zeros(shape.width)
        out[f"{new}self_attn.o_proj.weight"] = weights[f"{old}out"]
        out[f"{new}mlp.gate_proj.weight"], out[f"{new}mlp.up_proj.weight"] = weights[
            f"{old}gate_up"
        ]
        out[f"{new}mlp.down_proj.weight"] = weights[f"{old}down"]
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


def read(folder: Path, shape: Shape) -> dict[str, Tensor]:
    """Return the weights of an exported LLaDA folder under the network's names, in float32."""
    found = load_file(folder / "model.safetensors")
    top = "model.transformer."
    out = {
        "embed": found[f"{top}wte.weight"],
        "norm": found[f"{top}ln_f.weight"],
        "head": found[f"{top}ff_out.weight"],
    }
    for i in range(shape.layers):
        new, old = f"blocks.{i}.", f"{top}blocks.{i}."
        out[f"{new}norm1"] = found[f"{old}attn_norm.weight"]
        out[f"{new}norm2"] = found[f"{old}ff_norm.weight"]
        out[f"{new}qkv"] = torch.stack([found[f"{old}{n}_proj.weight"] for n in "qkv"])
        out[f"{new}out"] = found[f"{old}attn_out.weight"]
        out[f"{new}gate_up"] = torch.stack(
            [found[f"{old}ff_proj.weight"], found[f"{old}up_proj.weight"]]
        )
        out[f"{new}down"] = found[f"{old}ff_out.weight"]
    return {name: tensor.float() for name, tensor in out.items()}


def export(
    weights: dict[str, Tensor],
    shape: Shape,
    family: str,
    folder: Path,
    phases: list[dict[str, Any]],
) -> None:
    """Write tokenizer, config, bfloat16 weights and the phases of the training."""
    name = llada_tensors if family == "llada" else qwen2_tensors
    config = llada_config if family == "llada" else qwen2_config
    tokenizer.write(folder, family)
    for file, content in (("config.json", config(shape)), (HISTORY, phases)):
        text = json.dumps(content, indent=2) + "\n"
        (folder / file).write_text(text, encoding="utf-8")
    tensors = {k: v.to(torch.bfloat16).contiguous() for k, v in name(weights, shape).items()}
    part = folder / "model.safetensors.part"
    save_file(tensors, part, metadata={"format": "pt"})
    part.chmod(0o644)
    os.replace(part, folder / "model.safetensors")
