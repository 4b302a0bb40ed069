"""Write a trained network as a checkpoint folder of the LLaDA, the Qwen2 or the Dream layout."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from engine.models import llada
from engine.models.loading.layout import LLAMA, Layout
from engine.tiny import tokenizer
from engine.tiny.network import Shape

HISTORY = "training.json"
LAYOUTS = {"llada": llada.OWN, "qwen2": LLAMA, "dream": LLAMA}
OURS = {
    "norm1": "attn_norm.weight", "norm2": "ff_norm.weight", "qkv": "qkv.weight",
    "out": "out.weight", "gate_up": "gate_up.weight", "down": "down.weight",
}  # fmt: skip


def tensors(weights: dict[str, Tensor], shape: Shape, family: str) -> dict[str, Tensor]:
    """Name the network's weights as the checkpoints of a family do; biases are zero."""
    out: dict[str, Tensor] = {}
    names = _names(shape, LAYOUTS[family])
    for name, parts in names.items():
        fused = weights[name] if len(parts) > 1 else weights[name][None]
        out |= dict(zip(parts, fused, strict=True))
    if family != "llada":
        triples = (parts for parts in names.values() if len(parts) == 3)
        biased = [part.removesuffix("weight") + "bias" for parts in triples for part in parts]
        out |= {name: torch.zeros(shape.width) for name in biased}
    return out


def read(folder: Path, shape: Shape) -> dict[str, Tensor]:
    """Return the weights of an exported folder under the network's names, in float32."""
    found = load_file(folder / "model.safetensors")
    names = _names(shape, llada.OWN if llada.OWN.embedding in found else LLAMA)
    stacked = {
        name: torch.stack([found[part].float() for part in parts]) for name, parts in names.items()
    }
    return {n: t[0] if len(t) == 1 else t for n, t in stacked.items()}


def _names(shape: Shape, layout: Layout) -> dict[str, tuple[str, ...]]:
    """The checkpoint's tensors that make up each of the network's."""
    out: dict[str, tuple[str, ...]] = {
        "embed": (layout.embedding,), "norm": (layout.norm,), "head": (layout.head,)
    }  # fmt: skip
    for i in range(shape.layers):
        prefix = layout.block.format(i)
        for name, ours in OURS.items():
            parts = tuple(f"{prefix}{part}.weight" for part in layout.leaves[ours])
            out[f"blocks.{i}.{name}"] = parts
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


def dream_config(shape: Shape) -> dict[str, Any]:
    """Return `config.json` with the fields of the published Dream checkpoints."""
    return qwen2_config(shape) | {
        "architectures": ["DreamModel"],
        "auto_map": {
            "AutoConfig": "configuration_dream.DreamConfig",
            "AutoModel": "modeling_dream.DreamModel",
        },
        "eos_token_id": tokenizer.EOS,
        "mask_token_id": tokenizer.MASK,
        "model_type": "Dream",
        "rope_scaling": None,
        "use_cache": False,
        "use_mrope": False,
    }


def export(
    weights: dict[str, Tensor],
    shape: Shape,
    family: str,
    folder: Path,
    phases: list[dict[str, Any]],
    vocabulary: str = "words",
) -> None:
    """Write tokenizer, config, bfloat16 weights and the phases of the training."""
    configs = {"llada": llada_config, "qwen2": qwen2_config, "dream": dream_config}
    tokenizer.write(folder, family, vocabulary)
    for file, content in (("config.json", configs[family](shape)), (HISTORY, phases)):
        text = json.dumps(content, indent=2) + "\n"
        (folder / file).write_text(text, encoding="utf-8")
    named = tensors(weights, shape, family)
    halves = {name: tensor.to(torch.bfloat16).contiguous() for name, tensor in named.items()}
    part = folder / "model.safetensors.part"
    save_file(halves, part, metadata={"format": "pt"})
    part.chmod(0o644)
    os.replace(part, folder / "model.safetensors")
