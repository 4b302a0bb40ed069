"""Models of any size with random weights, named as `llada` or `dream:layers=2,d=64`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import torch

from engine.models.base import ModelInfo
from engine.models.loading.families import adapter_class
from engine.models.loading.pretrained import PretrainedAdapter
from engine.models.loading.registry import (
    DREAM_7B,
    FAST_DLLM_V2_7B,
    LLADA2_MINI,
    LLADA_8B,
    LLADA_MOE_7B,
    MMADA_8B,
    SDAR_8B,
)

STD = 0.02
PUBLISHED = {
    "llada": LLADA_8B, "mmada": MMADA_8B, "dream": DREAM_7B, "llada_moe": LLADA_MOE_7B,
    "llada2": LLADA2_MINI, "sdar": SDAR_8B, "fast_dllm_v2": FAST_DLLM_V2_7B,
}  # fmt: skip
DIGITS = 9  # most of a size
MINIMUM = {"vocab": 1024}  # DARE is calibrated with the embedded models' tokenizer
_NAME = re.compile(rf"({'|'.join(PUBLISHED)})(?::(.*))?")
_VOCAB = ("vocab_size", "embedding_size")
_LLADA_SIZES: Mapping[str, tuple[str, ...]] = {
    "layers": ("n_layers",), "d": ("d_model",), "heads": ("n_heads",), "kv": ("n_kv_heads",),
    "ffn": ("mlp_hidden_size",), "vocab": _VOCAB,
}  # fmt: skip
_QWEN = {
    "layers": ("num_hidden_layers",), "d": ("hidden_size",), "heads": ("num_attention_heads",),
    "kv": ("num_key_value_heads",), "ffn": ("intermediate_size",), "vocab": _VOCAB[:1],
}  # fmt: skip
SIZE_FIELDS: Mapping[str, Mapping[str, tuple[str, ...]]] = {
    "llada": _LLADA_SIZES,
    "mmada": {**_LLADA_SIZES, "vocab": (*_VOCAB, "new_vocab_size", "llm_vocab_size")},
    "dream": _QWEN,
    "sdar": {**_QWEN, "head": ("head_dim",), "block": ("block_size",)},
    "fast_dllm_v2": {**_QWEN, "block": ("bd_size",)},
    "llada_moe": {
        **_QWEN, "ffn": ("expert_intermediate_size",), "experts": ("num_experts",),
        "active": ("num_experts_per_tok",),
    },
    "llada2": {
        **_QWEN, "head": ("head_dim",), "ffn": ("moe_intermediate_size",),
        "experts": ("num_experts",), "active": ("num_experts_per_tok",),
    },
}  # fmt: skip


def is_random_model(text: str) -> bool:
    """Whether a text names a model with random weights, such as `dream:layers=2,d=64`."""
    return bool(_NAME.fullmatch(text))


def random_model_config(name: str) -> dict[str, Any]:
    """The config of a random model; missing sizes are those of the published model.

    Without `kv`, `heads` also sets the number of key heads; with `vocab`, the last two ids are
    the end of text and the mask. Raises ValueError naming `model` and the wrong size.
    """
    found = _NAME.fullmatch(name)
    assert found, "the caller checks is_random_model"
    family, listed = found.groups()
    sizes: dict[str, int] = {}
    for part in listed.split(",") if listed else []:
        size, _, value = part.partition("=")
        if size not in SIZE_FIELDS[family]:
            known = ", ".join(SIZE_FIELDS[family])
            raise ValueError(f"model: {name}: unknown size {size!r}; the sizes are {known}")
        least = MINIMUM.get(size, 1)
        if not value.isdecimal() or len(value) > DIGITS or int(value) < least:
            raise ValueError(
                f"model: {name[:100]}: {size} should be a whole number of at least {least}, of at "
                f"most {DIGITS} digits"
            )
        sizes[size] = int(value)
    sizes = ({"kv": sizes["heads"]} if "heads" in sizes else {}) | sizes
    config = dict(PUBLISHED[family])
    for size, count in sizes.items():
        config |= dict.fromkeys(SIZE_FIELDS[family][size], count)
    if "vocab" in sizes:
        ends = dict.fromkeys(("eos_token_id", "pad_token_id"), sizes["vocab"] - 2)
        config |= ends | {"mask_token_id": sizes["vocab"] - 1}
        if "codebook_size" in config:
            config["codebook_size"] = 0
    return config


def random_name(info: ModelInfo, **changed: int) -> str:
    """The name of the random model with the sizes of `info`, but for the `changed` ones."""
    inner = info.ffn if info.experts is None else info.experts.ffn
    sizes = {
        "layers": info.layers, "d": info.d_model, "heads": info.n_heads, "kv": info.n_kv_heads,
        "ffn": inner, "vocab": info.vocab_size, "head": info.head_dim, "block": info.block_size,
    } | changed  # fmt: skip
    known = SIZE_FIELDS[info.family]
    listed = ",".join(f"{size}={value}" for size, value in sizes.items() if size in known)
    return f"{info.family}:{listed}"


def random_adapter(
    config: Mapping[str, Any], dtype: torch.dtype, device: torch.device, seed: int = 0
) -> PretrainedAdapter:
    """A model of a config with normal weights of standard deviation 0.02 and norms of 1.

    The bias of a router is normal too, so that it changes which experts are chosen.
    """
    kind = adapter_class(config)
    with torch.device("meta"):
        adapter = kind(kind.read_info(config))
    adapter.to(dtype).to_empty(device=device)
    if adapter.info.tied:
        adapter.head.weight = adapter.embedding.weight
    draw = torch.Generator(device).manual_seed(seed)
    for name, tensor in adapter.named_parameters():
        normal = tensor.dim() > 1 or name.endswith("router.bias")
        tensor.normal_(0, STD, generator=draw) if normal else tensor.fill_(1)
    return adapter.eval()


def random_prompt(info: ModelInfo, tokens: int, seed: int = 1) -> list[int]:
    """Random ids below the mask and the ids that end a text."""
    draw = torch.Generator().manual_seed(seed)
    below = min(info.mask_id, info.eos_id, *info.stop_ids)
    return torch.randint(below, (tokens,), generator=draw).tolist()
