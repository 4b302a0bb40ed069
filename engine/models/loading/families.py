"""families: the adapter of a checkpoint, by what its config says it is."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from engine.config.spec import RunSpec
from engine.models.base import ModelInfo
from engine.models.dream import DreamAdapter
from engine.models.llada import LladaAdapter
from engine.models.loading.checkpoint import CheckpointError, read_json
from engine.models.loading.config import read_config
from engine.models.loading.pretrained import Pretrained

ADAPTERS: dict[str, type[Pretrained]] = {
    "llada": LladaAdapter, "Dream": DreamAdapter, "llava_llada": LladaAdapter,
}  # fmt: skip


def embedded_models(assets: Path) -> dict[str, Path]:
    """Checkpoint folders under `assets/models` that an adapter can read, the default first."""
    found = {}
    for config in sorted((assets / "models").glob("*/config.json")):
        try:
            known = read_json(config).get("model_type") in tuple(ADAPTERS)
        except CheckpointError:
            known = True  # listed, so that its error is shown when it is chosen
        if known:
            found[config.parent.name] = config.parent
    return dict(sorted(found.items(), key=lambda item: item[0] != RunSpec().model))


def adapter_for(config: Mapping[str, Any]) -> type[Pretrained]:
    """The adapter of a config's family; CheckpointError names `model_type` if there is none."""
    family = config.get("model_type")
    if family not in tuple(ADAPTERS):
        raise CheckpointError(
            f"config.json: model_type is {family!r}; the engine reads {' and '.join(ADAPTERS)}"
        )
    return ADAPTERS[family]


def adapter_of(folder: Path) -> type[Pretrained]:
    """The adapter of a checkpoint's family; see `adapter_for`."""
    return adapter_for(read_json(folder / "config.json"))


def info_of(folder: Path) -> ModelInfo:
    """Sizes and ids of a checkpoint, from its config and, for the mask, its tokenizer's files."""
    config = read_config(folder)
    return adapter_for(config).read_info(config)
