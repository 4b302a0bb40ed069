"""Library: the checkpoints a session may use, listed by name and loaded on demand."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from engine.lane import LoadedModel
from engine.models.base import ModelInfo
from engine.models.dream import DreamAdapter
from engine.models.llada import LladaAdapter
from engine.models.pretrained import Pretrained
from engine.models.weights import Checkpoint, CheckpointError, read_json
from engine.spec import RunSpec
from engine.text import Tokenizer

IN_MEMORY = 2
ADAPTERS: dict[str, type[Pretrained]] = {"llada": LladaAdapter, "Dream": DreamAdapter}


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


def adapter_of(folder: Path) -> type[Pretrained]:
    """The adapter of a checkpoint's family; CheckpointError names `model_type` if there is none."""
    family = read_json(folder / "config.json").get("model_type")
    if family not in tuple(ADAPTERS):
        raise CheckpointError(
            f"config.json: model_type is {family!r}; the engine reads {' and '.join(ADAPTERS)}"
        )
    return ADAPTERS[family]


def info_of(folder: Path) -> ModelInfo:
    """Sizes and ids of a checkpoint, from its config alone."""
    return adapter_of(folder).read_info(read_json(folder / "config.json"))


class Library:
    """Checkpoints by name; the last few used stay in memory.

    Raises ValueError naming `model` or `device`, CheckpointError naming file or tensor.
    """

    def __init__(self, folders: Mapping[str, Path]) -> None:
        self._folders = dict(folders)
        self._loaded: OrderedDict[tuple[str, str, str], LoadedModel] = OrderedDict()
        self._tokenizers: dict[str, Tokenizer] = {}

    def describe(self) -> list[dict[str, Any]]:
        """Name, title, family and context of each; `error` where its config is unusable."""
        return [self._describe(name) for name in self._folders]

    def tokenizer(self, name: str) -> Tokenizer:
        """The tokenizer of a model."""
        if name not in self._tokenizers:
            self._tokenizers[name] = Tokenizer(self._folder(name))
        return self._tokenizers[name]

    def context(self, name: str) -> int:
        """Positions that a model can hold."""
        return info_of(self._folder(name)).max_length

    def is_loaded(self, spec: RunSpec) -> bool:
        """Whether the model of a spec is in memory."""
        return (spec.model, spec.dtype, spec.device) in self._loaded

    def load(self, spec: RunSpec) -> LoadedModel:
        """The model of a spec in its number format on its device."""
        key = (spec.model, spec.dtype, spec.device)
        folder = self._folder(spec.model)
        if key not in self._loaded:
            device, tokenizer = usable_device(spec.device), self.tokenizer(spec.model)
            dtype = getattr(torch, spec.dtype)
            while len(self._loaded) >= IN_MEMORY:
                self._loaded.popitem(last=False)
            reader, files = adapter_of(folder), Checkpoint(folder)
            adapter = reader.from_checkpoint(files, dtype, device, tokenizer.stop_ids)
            self._loaded[key] = LoadedModel(adapter, tokenizer, files.digest(), folder)
        self._loaded.move_to_end(key)
        return self._loaded[key]

    def _folder(self, name: str) -> Path:
        if not self._folders:
            raise ValueError("model: there is none; put a checkpoint folder under assets/models")
        if name not in self._folders:
            raise ValueError(f"model: {name!r} is unknown; choose from {', '.join(self._folders)}")
        return self._folders[name]

    def _describe(self, name: str) -> dict[str, Any]:
        row = {"name": name, "title": name, "family": "", "max_length": 0}
        try:
            info = info_of(self._folders[name])
        except CheckpointError as error:
            return row | {"error": str(error)}
        title = f"{name} ({info.layers} layers, context {info.max_length:,})"
        return row | {"title": title, "family": info.family, "max_length": info.max_length}


def usable_device(name: str) -> torch.device:
    """The device called `name`; ValueError names `device` where it is not there."""
    cuda = [f"cuda:{i}" for i in range(torch.cuda.device_count())]
    present = ["cpu", *(["cuda"] if cuda else []), *cuda]
    if name not in present:
        raise ValueError(f"device: {name!r} is not available; choose from {', '.join(present)}")
    return torch.device(name)
