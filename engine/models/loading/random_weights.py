"""Shapes: a network of any size with weights drawn at random on the device itself."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import torch

from engine.models.base import ModelInfo
from engine.models.loading.families import adapter_for
from engine.models.loading.pretrained import Pretrained
from engine.models.loading.registry import DREAM_7B, LLADA_8B

SPREAD = 0.02
PUBLISHED = {"llada": LLADA_8B, "dream": DREAM_7B}
LEAST = {"vocab": 768}  # DARE is calibrated with the embedded models' tokenizer
_FORM = re.compile(rf"({'|'.join(PUBLISHED)})(?::(.*))?")
_VOCAB = ("vocab_size", "embedding_size")
FIELDS: Mapping[str, Mapping[str, tuple[str, ...]]] = {
    "llada": {
        "layers": ("n_layers",), "d": ("d_model",), "heads": ("n_heads",), "kv": ("n_kv_heads",),
        "ffn": ("mlp_hidden_size",), "vocab": _VOCAB,
    },
    "dream": {
        "layers": ("num_hidden_layers",), "d": ("hidden_size",), "heads": ("num_attention_heads",),
        "kv": ("num_key_value_heads",), "ffn": ("intermediate_size",), "vocab": _VOCAB[:1],
    },
}  # fmt: skip


def is_shape(text: str) -> bool:
    """Whether a text has the form of a shape, `llada` or `dream:layers=2,d=64`."""
    return bool(_FORM.fullmatch(text))


def config_of(shape: str) -> dict[str, Any]:
    """The config of a shape; sizes that it leaves out are the published model's.

    With `heads` but no `kv` all heads have keys of their own; with `vocab` the last two ids are
    the end of text and the mask. Raises ValueError naming `model` and the size that is wrong.
    """
    found = _FORM.fullmatch(shape)
    assert found, "asked after is_shape"
    family, listed = found.groups()
    sizes: dict[str, int] = {}
    for part in listed.split(",") if listed else []:
        name, _, value = part.partition("=")
        if name not in FIELDS[family]:
            known = ", ".join(FIELDS[family])
            raise ValueError(f"model: {shape}: {name!r} is no size; the sizes are {known}")
        if not value.isdecimal() or int(value) < LEAST.get(name, 1):
            least = LEAST.get(name, 1)
            raise ValueError(f"model: {shape}: {name} should be a whole number from {least} on")
        sizes[name] = int(value)
    sizes = ({"kv": sizes["heads"]} if "heads" in sizes else {}) | sizes
    config = dict(PUBLISHED[family])
    for name, size in sizes.items():
        config |= dict.fromkeys(FIELDS[family][name], size)
    if "vocab" in sizes:
        ends = dict.fromkeys(("eos_token_id", "pad_token_id"), sizes["vocab"] - 2)
        config |= ends | {"mask_token_id": sizes["vocab"] - 1}
    return config


def random_adapter(
    config: Mapping[str, Any], dtype: torch.dtype, device: torch.device, seed: int = 0
) -> Pretrained:
    """A model of a config with normal weights of deviation 0.02 and norms of 1."""
    kind = adapter_for(config)
    with torch.device("meta"):
        adapter = kind(kind.read_info(config))
    adapter.to(dtype).to_empty(device=device)
    if adapter.info.tied:
        adapter.head.weight = adapter.embedding.weight
    draw = torch.Generator(device).manual_seed(seed)
    for tensor in adapter.parameters():
        tensor.normal_(0, SPREAD, generator=draw) if tensor.dim() > 1 else tensor.fill_(1)
    return adapter.eval()


def random_prompt(info: ModelInfo, tokens: int, seed: int = 1) -> list[int]:
    """Ids of ordinary tokens."""
    draw = torch.Generator().manual_seed(seed)
    below = min(info.mask_id, *info.stop_ids)
    return torch.randint(below, (tokens,), generator=draw).tolist()
