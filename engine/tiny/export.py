"""Write a trained network as a checkpoint folder; read it back.

The layouts are those of LLaDA, Qwen2, Dream and Fast-dLLM v2.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save
from tokenizers import Tokenizer
from torch import Tensor

from engine.core.files import read_json, write_atomically
from engine.models.llada import LLADA
from engine.models.loading.exam_file import EXAM
from engine.models.loading.layout import LLAMA, Layout
from engine.tiny import tokenizer
from engine.tiny.network import NetworkShape

HISTORY = "training.json"
FIRST_FAMILY = ("short_problems", 1.0)  # of phases that name none
LAYOUTS = {"llada": LLADA, "qwen2": LLAMA, "dream": LLAMA, "fast_dllm_v2": LLAMA}
SHIFTED = ("dream", "fast_dllm_v2")  # masked families of which a row predicts the next position
# The model_type in a folder's config.json, to its family.
MODEL_TYPES = {
    "llada": "llada", "qwen2": "qwen2", "Dream": "dream", "Fast_dLLM_Qwen": "fast_dllm_v2",
}  # fmt: skip
# A parameter of the engine's adapter, to the network's parameters that it concatenates.
PARAMETERS = {
    "attn_norm.weight": ("norm1",), "ff_norm.weight": ("norm2",), "qkv.weight": ("q", "k", "v"),
    "out.weight": ("out",), "feed_forward.gate_up.weight": ("gate", "up"),
    "feed_forward.down.weight": ("down",),
}  # fmt: skip


def training_minutes(phases: list[dict[str, Any]]) -> tuple[int, int]:
    """Minutes of training on a CPU and on a GPU; phases without a device ran on a CPU."""
    on_gpu = sum(map(gpu_seconds, phases))
    on_cpu = sum(phase["seconds"] - gpu_seconds(phase) for phase in phases)
    return round(on_cpu / 60), round(on_gpu / 60)


def gpu_seconds(phase: dict[str, Any]) -> float:
    """Seconds of a phase on a GPU; without that number a phase ran on one device to its end."""
    whole = phase["seconds"] if phase.get("device", "cpu") != "cpu" else 0.0
    found: float = phase.get("gpu_seconds", whole)
    return found


def trained_families(phases: list[dict[str, Any]]) -> list[str]:
    """The problem families of the last phase of a training, in the order of their names.

    Families of earlier phases alone are forgotten. Empty without a history.
    """
    if not phases:
        return []
    return sorted({name for name, _ in phases[-1]["recipe"].get("families", [FIRST_FAMILY])})


def read_history(folder: Path) -> list[dict[str, Any]]:
    """The phases of a model's training; empty if the folder is not of an embedded model.

    Raises ValueError naming the file if it is no list of phases.
    """
    path = folder / HISTORY
    if not path.exists():
        return []
    found = read_json(path, "folder")
    if not isinstance(found, list) or not all(map(_is_phase, found)):
        raise ValueError(f"folder: {path} was not written by `train export`; write it anew")
    return found


def _is_phase(value: Any) -> bool:
    """Whether a value has the parts of a phase that its readers need."""
    return (
        isinstance(value, dict)
        and value.keys() >= {"recipe", "tokens", "step", "seconds", "curve"}
        and isinstance(value["recipe"], dict)
    )


def read_family(folder: Path) -> str:
    """The family whose layout an exported folder has, a key of LAYOUTS.

    Raises ValueError naming the folder's `config.json` if it cannot be read or is another model's.
    """
    config = read_json(folder / "config.json", "folder")
    kind = config.get("model_type") if isinstance(config, dict) else None
    if kind not in MODEL_TYPES:
        raise ValueError(f"folder: {folder} is no model of `train export` (model_type {kind!r})")
    return MODEL_TYPES[kind]


def checkpoint_tensors(
    weights: dict[str, Tensor], shape: NetworkShape, family: str
) -> dict[str, Tensor]:
    """The network's weights under the names of a family; zero biases but for LLaDA."""
    names = _names(shape, LAYOUTS[family])
    out = {theirs: weights[ours] for ours, theirs in names.items()}
    if family != "llada":
        biased = [theirs for ours, theirs in names.items() if ours.endswith((".q", ".k", ".v"))]
        out |= {f"{name.removesuffix('weight')}bias": torch.zeros(shape.width) for name in biased}
    return out


def read_weights(folder: Path, shape: NetworkShape) -> dict[str, Tensor]:
    """The weights of an exported folder under the network's names, in float32."""
    found = load_file(folder / "model.safetensors")
    names = _names(shape, LLADA if LLADA.embedding in found else LLAMA)
    return {ours: found[theirs].float() for ours, theirs in names.items()}


def _names(shape: NetworkShape, layout: Layout) -> dict[str, str]:
    """Names of the network's parameters, to those of the checkpoint's tensors."""
    out = {"embed": layout.embedding, "norm": layout.norm, "head": layout.head}
    for i in range(shape.layers):
        for leaf, names in PARAMETERS.items():
            for name, module in zip(names, layout.leaves[leaf], strict=True):
                out[f"blocks.{i}.{name}"] = f"{layout.block.format(i)}{module}.weight"
    return out


def llada_config(shape: NetworkShape) -> dict[str, Any]:
    """`config.json` with the fields of the published LLaDA checkpoints."""
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


def qwen2_config(shape: NetworkShape) -> dict[str, Any]:
    """`config.json` of a Qwen2 model."""
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


def dream_config(shape: NetworkShape) -> dict[str, Any]:
    """`config.json` with the fields of the published Dream checkpoints."""
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


def fast_dllm_v2_config(shape: NetworkShape, block: int) -> dict[str, Any]:
    """`config.json` with the fields of the published Fast-dLLM v2 checkpoints.

    Raises ValueError if `block`, the block size of the training, is 0.
    """
    if block < 1:
        raise ValueError("family: fast_dllm_v2 needs a network that was trained with --block")
    return qwen2_config(shape) | {
        "architectures": ["Fast_dLLM_QwenForCausalLM"],
        "auto_map": {
            "AutoConfig": "configuration.Fast_dLLM_QwenConfig",
            "AutoModelForCausalLM": "modeling.Fast_dLLM_QwenForCausalLM",
        },
        "bd_size": block,
        "eos_token_id": tokenizer.EOS,
        "mask_token_id": tokenizer.MASK,
        "model_type": "Fast_dLLM_Qwen",
        "rope_scaling": None,
    }


def write_checkpoint(
    weights: dict[str, Tensor],
    shape: NetworkShape,
    family: str,
    folder: Path,
    phases: list[dict[str, Any]],
    words: Tokenizer,
) -> None:
    """Write tokenizer, bfloat16 weights, the history of the training and, at last, the config.

    A folder without a config is no checkpoint, so an interrupted first export is not taken for one.
    An exam in the folder is of other weights, and is removed.
    `words` is the tokenizer of the training, as `save_vocabulary` keeps it. Raises ValueError if
    the network was not trained for the family, OSError if a file cannot be written.
    """
    config = _config(shape, family, phases)
    tokenizer.write(folder, family, tokenizer.as_family(words, family))
    tensors = {
        name: tensor.to(torch.bfloat16).contiguous()
        for name, tensor in checkpoint_tensors(weights, shape, family).items()
    }
    (folder / EXAM).unlink(missing_ok=True)
    write_atomically(folder / "model.safetensors", save(tensors, metadata={"format": "pt"}))
    for file, content in ((HISTORY, phases), ("config.json", config)):
        write_atomically(folder / file, (json.dumps(content, indent=2) + "\n").encode())


def _config(shape: NetworkShape, family: str, phases: list[dict[str, Any]]) -> dict[str, Any]:
    """`config.json` of a family."""
    recipe = phases[-1]["recipe"] if phases else {}
    needed, block = "causal" if family == "qwen2" else "masked", recipe.get("block", 0)
    if recipe.get("kind", needed) != needed:
        raise ValueError(f"family: {family} needs a network that was trained with --kind {needed}")
    shift = int(family in SHIFTED)
    if needed == "masked" and recipe.get("shift", shift) != shift:
        raise ValueError(f"family: {family} needs a network that was trained with --shift {shift}")
    if family == "fast_dllm_v2":
        return fast_dllm_v2_config(shape, block)
    if block:
        raise ValueError(f"family: {family} attends in both directions; choose fast_dllm_v2")
    return {"llada": llada_config, "qwen2": qwen2_config, "dream": dream_config}[family](shape)
