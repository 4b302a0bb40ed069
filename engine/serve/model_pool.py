"""Library: the checkpoints a session may use, by name; found, fetched and loaded on demand."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Collection, Generator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import torch

from engine.config.spec import RunSpec
from engine.core.device import free_memory
from engine.core.files import cache_path
from engine.core.progress import run_to_end
from engine.models.base import ModelInfo
from engine.models.loading.checkpoint import Checkpoint, CheckpointError
from engine.models.loading.families import adapter_for, adapter_of, info_of
from engine.models.loading.hub import Hub
from engine.models.loading.memory_estimate import (
    check_fits,
    fits,
    free_bytes,
    main_of,
    parameters,
    weights_bytes,
)
from engine.models.loading.placement import plan_placing
from engine.models.loading.pretrained import Progress
from engine.models.loading.registry import REGISTERED
from engine.models.loading.resolver import ModelResolver
from engine.models.tokenizer import Tokenizer, turns_of
from engine.serve.guider_pool import GuiderPool
from engine.serve.lane import LoadedModel, check_context
from engine.serve.memory_budget import MemoryBudget, bytes_of_run, dtype_of, held_bytes, measure

IN_MEMORY = 2  # models that are kept beside the embedded ones, where memory allows
Key = tuple[str, str, str]


class ModelPool:
    """The models of a stock; the embedded ones stay in memory, of the others the last few.

    Raises ValueError naming `model` or `device`, CheckpointError naming file or tensor.
    """

    def __init__(
        self, folders: Mapping[str, Path], hub: Hub | None = None, public: bool = False
    ) -> None:
        self._stock = ModelResolver(folders, hub, public)
        self.guiders = GuiderPool.of(hub, public)
        self._loaded: OrderedDict[Key, LoadedModel] = OrderedDict()
        self._tokenizers: dict[Path, Tokenizer] = {}

    def describe(self) -> list[dict[str, Any]]:
        """What may be chosen, as plain data; `error` where a config cannot be used.

        `available`: on disk now; `parameters` are 0 where they are unknown.
        """
        return [self._describe(name) for name in self._stock.names]

    def find(self, name: str) -> Path | None:
        """The folder of a model; None where it must be fetched first."""
        return self._stock.find(name)

    def info(self, name: str) -> ModelInfo | None:
        """Sizes and ids of a model, on disk or registered; None where they are not known yet."""
        folder = self.find(name)
        if folder is None:
            known = REGISTERED.get(name)
            return adapter_for(known.config).read_info(known.config) if known else None
        return info_of(folder)

    def tokenizer(self, name: str) -> Tokenizer:
        """The tokenizer of a model that is on disk."""
        folder = self.find(name)
        if folder is None:
            raise ValueError(f"model: {name} is not on this machine yet; run it to fetch it")
        return self._tokenizer_of(folder)

    def prompt(self, spec: RunSpec) -> list[int] | None:
        """The prompt of a spec as ids of its model; None where that is not on disk yet.

        Raises ValueError naming `prompt`, or `chat` where the template asks for more than the
        model's vocabulary.
        """
        folder = self.find(spec.model)
        if folder is None:
            turns_of(spec)
            return None
        return encoded(spec, self.tokenizer(spec.model), info_of(folder))

    def fetch_bytes(self, name: str) -> int | None:
        """Bytes to fetch before a model can be loaded, published at 16 bits; None if unknown."""
        if self.find(name) is not None:
            return 0
        info = self.info(name)
        return None if info is None else weights_bytes(info, torch.bfloat16)

    def room(self, spec: RunSpec, tokens: int) -> MemoryBudget | None:
        """What a spec with a prompt of so many tokens takes; None where that is not known yet.

        What is free counts what would be given up to load the model, and the model itself where
        it is loaded. Raises MemoryShort naming `model` where it does not fit.
        """
        info = self.info(spec.model)
        free = self._free({_key(spec)})
        main_of(spec.device, free)
        beside = self.guiders.planned_bytes(spec, tokens) or 0
        return None if info is None else measure(spec, info, tokens, free, beside)

    def fetch(self, spec: RunSpec) -> Generator[Progress, None, None]:
        """Bring the model of a spec and its guider to this machine, where they are not.

        Whether the run fits is asked again once config and tokenizer of either are here; see
        Hub.fetch.
        """

        def fits_here(model: Path, guider: Path | None = None) -> None:
            info, tokenizer = info_of(model), self._tokenizer_of(model)
            prompt = encoded(spec, tokenizer, info)
            check_context(len(prompt), spec, info.max_length)
            self.guiders.check(spec, tokenizer, info, prompt, guider)
            beside = self.guiders.planned_bytes(spec, len(prompt), guider) or 0
            measure(spec, info, len(prompt), self._free({_key(spec)}), beside)

        yield from self._stock.fetch(spec.model, fits_here)
        model = self.find(spec.model)
        assert model is not None, "it has been fetched"
        yield from self.guiders.fetch(spec, partial(fits_here, model))

    def load(self, spec: RunSpec) -> LoadedModel:
        """The model of a spec in its number format on its device."""
        return run_to_end(self.loading(spec))

    def loading(
        self, spec: RunSpec, tokens: int = 1, beside: Collection[RunSpec] = ()
    ) -> Generator[Progress, None, LoadedModel]:
        """`load`, told as it goes, with room for a prompt of so many tokens.

        The models of the specs `beside` are not given up for it.
        """
        key, folder = _key(spec), self.find(spec.model)
        tokenizer = self.tokenizer(spec.model)
        assert folder is not None, "a tokenizer lies beside its model"
        if key not in self._loaded:
            info, dtype, files = info_of(folder), dtype_of(spec), Checkpoint(folder)
            run = bytes_of_run(spec, info, tokens) + (self.guiders.planned_bytes(spec, tokens) or 0)
            self._make_room(spec, info, run, {_key(other) for other in beside})
            digest = files.digest()
            spill = cache_path(digest, f"offload-{spec.dtype}")
            placing = plan_placing(info, dtype, spec.device, spill, run)
            before = free_bytes()
            adapter = yield from adapter_of(folder).load(files, dtype, placing, tokenizer.stop_ids)
            guide = partial(self.guiders.make_run_guider, tokenizer, info)
            took = taken(spec.device, before, free_bytes())
            self._loaded[key] = LoadedModel(
                adapter, tokenizer, digest, folder, guide=guide, loading=took
            )
        self._loaded.move_to_end(key)
        yield from self.guiders.load(spec)
        return self._loaded[key]

    def _tokenizer_of(self, folder: Path) -> Tokenizer:
        if folder not in self._tokenizers:
            self._tokenizers[folder] = Tokenizer(folder)
        return self._tokenizers[folder]

    def _others(self, kept: Collection[Key]) -> list[Key]:
        """Loaded models that may be given up, the oldest first."""
        return [key for key in list(self._loaded) if key not in kept and not _ships(key[0])]

    def _free(self, kept: Collection[Key]) -> dict[str, int]:
        """Bytes free by device, once what may be given up is, and the models `kept` are as well.

        Asked by plans while another thread may load: it looks at a copy.
        """
        leaving = [
            one for key, one in list(self._loaded.items()) if key in kept or not _ships(key[0])
        ]
        held = held_bytes(one.adapter for one in leaving)
        return {name: count + held.get(name, 0) for name, count in free_bytes().items()}

    def _make_room(self, spec: RunSpec, info: ModelInfo, run: int, kept: Collection[Key]) -> None:
        """Give up models, the oldest first, until another fits; MemoryShort where it never does."""
        dtype, main = dtype_of(spec), main_of(spec.device, free_bytes())
        while others := self._others(kept):
            if len(others) < IN_MEMORY and fits(info, dtype, main, run):
                break
            del self._loaded[others[0]]
            free_memory()
        check_fits(info, dtype, spec.device, run)

    def _describe(self, name: str) -> dict[str, Any]:
        known = REGISTERED.get(name)
        row: dict[str, Any] = {
            "name": name, "title": known.title if known else name, "family": "", "max_length": 0,
            "licence": known.licence if known else "", "parameters": 0, "embedded": _ships(name),
            "available": False, "registered": known is not None, "fetch_bytes": 0,
            "presets": [preset.to_dict() for preset in known.presets] if known else [],
        }  # fmt: skip
        try:
            row["available"] = self.find(name) is not None
            info = self.info(name)
        except CheckpointError as error:
            return row | {"error": str(error)}
        assert info is not None, "what is listed is on disk or registered"
        return row | {
            "family": info.family, "max_length": info.max_length,
            "parameters": parameters(info), "fetch_bytes": self.fetch_bytes(name),
        }  # fmt: skip


def encoded(spec: RunSpec, tokenizer: Tokenizer, info: ModelInfo) -> list[int]:
    """The prompt of a spec; ValueError naming `chat` where an id is beyond the model's."""
    ids = tokenizer.encode_spec(spec)
    if max(ids, default=0) >= info.vocab_size:
        raise ValueError(
            f"chat: the prompt's token {max(ids)} is beyond the model's {info.vocab_size}; switch "
            "the template off"
        )
    return ids


def taken(device: str, before: Mapping[str, int], after: Mapping[str, int]) -> dict[str, int]:
    """Bytes free on the main device of `device` before and after a model was loaded."""
    main = main_of(device, before)
    return {"free_before_bytes": before[main], "free_after_bytes": after[main]}


def _key(spec: RunSpec) -> Key:
    return spec.model, spec.dtype, spec.device


def _ships(name: str) -> bool:
    """Whether the repository ships a model of this name."""
    return name in REGISTERED and REGISTERED[name].embedded
