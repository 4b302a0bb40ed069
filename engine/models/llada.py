"""LLaDA: GSAI-ML/LLaDA-8B-Base, -Instruct and LLaDA-1.5, and anything in their layout."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from accelerate import init_empty_weights

from engine.models.base import ModelAdapter, ModelInfo
from engine.models.weights import Checkpoint, CheckpointError, read_json

EOT_TOKEN = "<|eot_id|>"
REQUIRED = {
    "alibi": False, "rope": True, "include_bias": False, "include_qkv_bias": False,
    "attention_layer_norm": False, "layer_norm_type": "rms", "block_type": "llama",
    "activation_type": "silu", "input_emb_norm": False, "scale_logits": False,
}  # fmt: skip
TOP = {
    "embedding.weight": "model.transformer.wte.weight",
    "norm": "model.transformer.ln_f.weight",
    "head.weight": "model.transformer.ff_out.weight",
}
LAYER = {
    "attn_norm": ("attn_norm",),
    "ff_norm": ("ff_norm",),
    "qkv.weight": ("q_proj", "k_proj", "v_proj"),
    "out.weight": ("attn_out",),
    "gate_up.weight": ("ff_proj", "up_proj"),
    "down.weight": ("ff_out",),
}


def read_info(config: Mapping[str, Any], stop_ids: tuple[int, ...] = ()) -> ModelInfo:
    """ModelInfo of a LLaDA `config.json`; `stop_ids` are ids that end a text beside EOS.

    Raises CheckpointError naming a field that is missing or asks for what LLaDA does not have.
    """
    for field, value in REQUIRED.items():
        if config.get(field, value) != value:
            raise CheckpointError(f"config.json: {field} is {config[field]!r}; {value!r} expected")
    sizes = {
        field: _whole(config, field, 1)
        for field in ("d_model", "n_layers", "n_heads", "mlp_hidden_size", "vocab_size",
                      "max_sequence_length")
    }  # fmt: skip
    vocab, heads = sizes["vocab_size"], sizes["n_heads"]
    kv = _whole(config, "n_kv_heads", 1) if config.get("n_kv_heads") else heads
    if sizes["d_model"] % heads or heads % kv:
        raise CheckpointError("config.json: n_heads must divide d_model, and n_kv_heads n_heads")
    if config.get("embedding_size"):
        _whole(config, "embedding_size", vocab)
    eos = _whole(config, "eos_token_id", 0, vocab)
    padded = config.get("pad_token_id") is not None
    return ModelInfo(
        family="llada",
        layers=sizes["n_layers"],
        d_model=sizes["d_model"],
        n_heads=heads,
        n_kv_heads=kv,
        ffn=sizes["mlp_hidden_size"],
        vocab_size=vocab,
        max_length=sizes["max_sequence_length"],
        rope_theta=_positive(config, "rope_theta", 10_000.0),
        norm_eps=_positive(config, "rms_norm_eps", 1e-5),
        mask_id=_whole(config, "mask_token_id", 0, vocab),
        eos_id=eos,
        pad_id=_whole(config, "pad_token_id", 0, vocab) if padded else eos,
        stop_ids=(eos, *(i for i in stop_ids if i != eos)),
        tied=bool(config.get("weight_tying", False)),
    )


def expected_tensors(info: ModelInfo, embedding_size: int) -> dict[str, tuple[int, ...]]:
    """Every tensor name of the layout with its shape."""
    d, kv, ffn = info.d_model, info.d_kv, info.ffn
    shapes: dict[str, tuple[int, ...]] = {
        "attn_norm": (d,), "ff_norm": (d,), "q_proj": (d, d), "k_proj": (kv, d), "v_proj": (kv, d),
        "attn_out": (d, d), "ff_proj": (ffn, d), "up_proj": (ffn, d), "ff_out": (d, ffn),
    }  # fmt: skip
    names = {
        f"model.transformer.blocks.{i}.{leaf}.weight": shape
        for i in range(info.layers)
        for leaf, shape in shapes.items()
    }
    names |= {TOP["embedding.weight"]: (embedding_size, d), TOP["norm"]: (d,)}
    return names if info.tied else names | {TOP["head.weight"]: (embedding_size, d)}


class LladaAdapter(ModelAdapter):
    """LLaDA on its own modules: bidirectional, no biases, logits unshifted."""

    family = "llada"

    @classmethod
    def from_folder(
        cls,
        folder: Path,
        dtype: torch.dtype,
        device: torch.device,
        stop_ids: tuple[int, ...] = (),
    ) -> LladaAdapter:
        """Read a checkpoint folder; CheckpointError names what is missing or does not fit."""
        config = read_json(folder / "config.json")
        info = read_info(config, stop_ids)
        checkpoint = Checkpoint(folder)
        checkpoint.check(expected_tensors(info, config.get("embedding_size") or info.vocab_size))
        with init_empty_weights():
            adapter = cls(info)
        for target, sources in cls._sources(info):
            parts = [checkpoint.load(name, dtype, device) for name in sources]
            tensor = torch.cat(parts) if len(parts) > 1 else parts[0]
            if target in ("embedding.weight", "head.weight"):
                tensor = tensor[: info.vocab_size].clone()
            module, _, leaf = target.rpartition(".")
            adapter.get_submodule(module).register_parameter(
                leaf, torch.nn.Parameter(tensor, requires_grad=False)
            )
        if info.tied:
            adapter.head.weight = adapter.embedding.weight
        return adapter.eval()

    @staticmethod
    def _sources(info: ModelInfo) -> list[tuple[str, tuple[str, ...]]]:
        pairs: list[tuple[str, tuple[str, ...]]]
        pairs = [(k, (v,)) for k, v in TOP.items() if not (info.tied and k == "head.weight")]
        for i in range(info.layers):
            stem = f"model.transformer.blocks.{i}"
            pairs += [
                (f"blocks.{i}.{target}", tuple(f"{stem}.{leaf}.weight" for leaf in leaves))
                for target, leaves in LAYER.items()
            ]
        return pairs


def _whole(config: Mapping[str, Any], field: str, lo: int, end: int = 2**31) -> int:
    value = config.get(field)
    if type(value) is not int:
        raise CheckpointError(f"config.json: {field} should be a whole number, got {value!r}")
    if not lo <= value < end:
        raise CheckpointError(f"config.json: {field} is {value}; {lo} to {end - 1} expected")
    return value


def _positive(config: Mapping[str, Any], field: str, default: float) -> float:
    value = config.get(field, default)
    if type(value) not in (int, float) or not 0 < value < 1e12:
        raise CheckpointError(f"config.json: {field} should be a positive number, got {value!r}")
    return float(value)
