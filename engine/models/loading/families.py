"""The families of checkpoints that can be read, and the adapter class of a checkpoint."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

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
from engine.models.mmada import MmadaAdapter
from engine.models.sdar import SdarAdapter


class Family(NamedTuple):
    """A family of checkpoints and the adapter that reads it.

    Attributes:
        architecture: the class named by `architectures` in its `config.json`.
        model_types: values of `model_type` in its `config.json`; families may share one.
        field: a field that tells a `config.json` without `architectures` from that of the others.
        adapter: the class that reads it.
    """

    architecture: str
    model_types: tuple[str, ...]
    field: str
    adapter: type[PretrainedAdapter]


FAMILIES = (
    Family("LLaDAModelLM", ("llada",), "d_model", LladaAdapter),
    Family("LlavaLLaDAModelLM", ("llava_llada", "llada"), "mm_vision_tower", LladaAdapter),
    Family("LLaDAMoEModelLM", ("llada",), "num_experts", LladaMoeAdapter),
    Family("LLaDA2MoeModelLM", ("llada2_moe",), "num_experts", Llada2Adapter),
    Family("MMadaModelLM", ("mmada",), "llm_vocab_size", MmadaAdapter),
    Family("DreamModel", ("Dream",), "hidden_size", DreamAdapter),
    Family("SDARForCausalLM", ("sdar",), "hidden_size", SdarAdapter),
    Family("Fast_dLLM_QwenForCausalLM", ("Fast_dLLM_Qwen",), "hidden_size", FastDllmV2Adapter),
)


def embedded_models(assets: Path) -> dict[str, Path]:
    """Checkpoint folders under `assets/models` that an adapter can read; the default one first."""
    found = {}
    for config in sorted((assets / "models").glob("*/config.json")):
        try:
            if family_of(read_json(config)) is None:
                continue
        except CheckpointError:
            pass  # listed, so that choosing it shows the error
        found[config.parent.name] = config.parent
    return dict(sorted(found.items(), key=lambda item: item[0] != RunSpec().model))


def embedded_guiders(assets: Path) -> dict[str, Path]:
    """Folders of the autoregressive models under `assets/models`, by name."""
    found = {}
    for config in sorted((assets / "models").glob("*/config.json")):
        try:
            fields = read_json(config)
        except CheckpointError:
            continue
        named = fields.get("architectures") or [""]
        # Some block diffusion models are named so too.
        if str(named[0]).endswith("ForCausalLM") and family_of(fields) is None:
            found[config.parent.name] = config.parent
    return found


def named_checkpoints(given: str | None, assets: Path) -> tuple[dict[str, Path], str]:
    """The checkpoint folders by name, and the name of the model that a command is given.

    `given` is the name of an embedded model, the path of a folder, which is added under its own
    name, or any other name, which is left to the session; None: the default model.
    """
    folders = embedded_models(assets)
    name = given or RunSpec().model
    if name not in folders and (os.path.isabs(name) or os.path.isdir(name)):
        folder = Path(os.path.abspath(name))  # which has a name, also of `.`
        return folders | {folder.name: folder}, folder.name
    return folders, name


def adapter_class(config: Mapping[str, Any]) -> type[PretrainedAdapter]:
    """The adapter class of a config.

    Raises CheckpointError naming the field by which the config is of no known family.
    """
    family = family_of(config)
    if family is None:
        known = ", ".join(family.architecture for family in FAMILIES)
        raise CheckpointError(
            f"config.json: model_type is {config.get('model_type')!r} and architectures "
            f"{config.get('architectures')!r}; the engine reads {known}"
        )
    return family.adapter


def family_of(config: Mapping[str, Any]) -> Family | None:
    """The family of a config, by its architecture if it names one; None if it is not known."""
    named, kind = config.get("architectures"), config.get("model_type")
    architecture = named[0] if isinstance(named, list) and named else named or None
    for family in FAMILIES:
        told = family.field in config if architecture is None else False
        if kind in family.model_types and (told or architecture == family.architecture):
            return family
    return None


def folder_adapter_class(folder: Path) -> type[PretrainedAdapter]:
    """The adapter class of a checkpoint folder; see `adapter_class`."""
    return adapter_class(read_json(folder / "config.json"))


def read_model_info(folder: Path) -> ModelInfo:
    """Sizes and token ids of a checkpoint folder; see `read_config`."""
    config = read_config(folder)
    return adapter_class(config).read_info(config)
