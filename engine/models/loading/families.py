"""The adapter class of a checkpoint, by the `model_type` of its config."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from engine.config.spec import RunSpec
from engine.models.base import ModelInfo
from engine.models.dream import DreamAdapter
from engine.models.fast_dllm_v2 import FastDllmV2Adapter
from engine.models.llada import LladaAdapter
from engine.models.llada2 import Llada2Adapter
from engine.models.llada_moe import LladaMoeAdapter
from engine.models.loading.checkpoint import CheckpointError, read_json
from engine.models.loading.config import read_config
from engine.models.loading.pretrained import PretrainedAdapter
from engine.models.sdar import SdarAdapter

ADAPTERS: dict[str, type[PretrainedAdapter]] = {
    "llada": LladaAdapter, "Dream": DreamAdapter, "llava_llada": LladaAdapter,
    "sdar": SdarAdapter, "Fast_dLLM_Qwen": FastDllmV2Adapter, "llada2_moe": Llada2Adapter,
}  # fmt: skip
WITH_EXPERTS: dict[str, type[PretrainedAdapter]] = {
    "llada": LladaMoeAdapter, "llada2_moe": Llada2Adapter,
}  # fmt: skip


def embedded_models(assets: Path) -> dict[str, Path]:
    """Checkpoint folders under `assets/models` that an adapter can read; the default one first."""
    found = {}
    for config in sorted((assets / "models").glob("*/config.json")):
        try:
            known = read_json(config).get("model_type") in tuple(ADAPTERS)
        except CheckpointError:
            known = True  # listed, so that choosing it shows the error
        if known:
            found[config.parent.name] = config.parent
    return dict(sorted(found.items(), key=lambda item: item[0] != RunSpec().model))


def named_checkpoints(given: str | None, assets: Path) -> tuple[dict[str, Path], str]:
    """The checkpoint folders by name, and the name of the model that a command is given.

    `given` is the name of an embedded model, the path of a folder, which is added under its own
    name, or any other name, which is left to the session; None: the default model.
    """
    folders = embedded_models(assets)
    name = given or RunSpec().model
    folder = Path(name)
    if name not in folders and (folder.is_absolute() or folder.is_dir()):
        return folders | {folder.name: folder}, folder.name
    return folders, name


def adapter_class(config: Mapping[str, Any]) -> type[PretrainedAdapter]:
    """The adapter class of a config; CheckpointError names an unsupported `model_type`.

    LLaDA and LLaDA-MoE have the same `model_type`; `num_experts` tells them apart.
    """
    family = config.get("model_type")
    if family not in tuple(ADAPTERS):
        raise CheckpointError(
            f"config.json: model_type is {family!r}; the engine reads {' and '.join(ADAPTERS)}"
        )
    if config.get("num_experts") is None:
        return ADAPTERS[family]
    if family not in WITH_EXPERTS:
        raise CheckpointError(
            f"config.json: num_experts is {config['num_experts']!r}; the engine reads experts of "
            f"{' and '.join(WITH_EXPERTS)} only, not of {family}"
        )
    return WITH_EXPERTS[family]


def folder_adapter_class(folder: Path) -> type[PretrainedAdapter]:
    """The adapter class of a checkpoint folder; see `adapter_class`."""
    return adapter_class(read_json(folder / "config.json"))


def read_model_info(folder: Path) -> ModelInfo:
    """Sizes and token ids of a checkpoint folder; see `read_config`."""
    config = read_config(folder)
    return adapter_class(config).read_info(config)
