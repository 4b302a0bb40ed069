"""ModelPool: the models of a session, found, downloaded and loaded on demand."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Collection, Generator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import torch

from engine.catalog import check_model
from engine.config.spec import RunSpec
from engine.core.device import free_memory, keep_freed_memory
from engine.core.files import cache_path
from engine.core.progress import ByteProgress, run_to_end
from engine.guider.model import Guider
from engine.models.base import ModelInfo
from engine.models.loading.checkpoint import Checkpoint, CheckpointError
from engine.models.loading.families import adapter_class, folder_adapter_class, read_model_info
from engine.models.loading.hub import Hub
from engine.models.loading.memory_estimate import (
    active_parameters,
    check_fits,
    fits,
    free_bytes,
    main_device,
    parameters,
    weights_bytes,
)
from engine.models.loading.placement import plan_placement
from engine.models.loading.registry import REGISTERED
from engine.models.loading.resolver import ModelResolver
from engine.models.tokenizer import Tokenizer, conversation
from engine.serve.guider_pool import GuiderPool, decodes_causally
from engine.serve.lane import LoadedModel, check_context, prompt_ids
from engine.serve.memory_budget import (
    MemoryBudget,
    dtype_of,
    held_bytes,
    plan_memory,
    spec_run_bytes,
)

MAX_LOADED = 2  # models kept in memory, apart from the embedded ones
Key = tuple[str, str, str]  # name, dtype, device


class ModelPool:
    """Models by name; the embedded ones stay in memory, of the others the MAX_LOADED used last.

    Its methods raise ValueError naming `model` or `device`, CheckpointError naming file or tensor.
    """

    def __init__(
        self, folders: Mapping[str, Path], hub: Hub | None = None, public: bool = False
    ) -> None:
        keep_freed_memory()  # a setting of the process, for all runs of its models
        self._resolver = ModelResolver(folders, hub, public)
        self.guiders = GuiderPool(hub, public)
        self._loaded: OrderedDict[Key, LoadedModel] = OrderedDict()
        self._tokenizers: dict[Path, Tokenizer] = {}

    def describe(self) -> list[dict[str, Any]]:
        """The models that may be chosen, as plain data.

        `available`: on disk. `parameters`: 0 if unknown. `error`: present if a config is invalid.
        """
        return [self._describe(name) for name in self._resolver.names]

    def info(self, name: str) -> ModelInfo | None:
        """Sizes and ids of a model that is on disk or registered; None of any other."""
        folder = self._resolver.find(name)
        if folder is None:
            known = REGISTERED.get(name)
            return adapter_class(known.config).read_info(known.config) if known else None
        return read_model_info(folder)

    def run_info(self, spec: RunSpec) -> ModelInfo | None:
        """Sizes and ids of the model that decodes a spec; None if they are unknown."""
        return self.guiders.decoder_info(spec) if decodes_causally(spec) else self.info(spec.model)

    def tokenizer(self, name: str) -> Tokenizer:
        """The tokenizer of a model that is on disk."""
        folder = self._resolver.find(name)
        if folder is None:
            raise ValueError(f"model: {name} is not on this machine yet; run it to fetch it")
        return self._tokenizer_of(folder)

    def prompt(self, spec: RunSpec) -> list[int] | None:
        """The ids of a spec's prompt; None if its model is not on disk.

        Raises ValueError naming `prompt`, or `chat` if the template has ids that the model lacks.
        """
        if decodes_causally(spec):
            return self.guiders.decoder_prompt(spec)
        folder = self._resolver.find(spec.model)
        if folder is None:
            conversation(spec.prompt, spec.messages)
            return None
        return checked_prompt(spec, self.tokenizer(spec.model), read_model_info(folder))

    def run_fetch_bytes(self, spec: RunSpec) -> int | None:
        """Bytes to download before a spec can be run, those of a guider included if known."""
        if decodes_causally(spec):
            return self.guiders.decoder_fetch_bytes(spec)
        missing = self.fetch_bytes(spec.model)
        return None if missing is None else missing + self.guiders.fetch_bytes(spec)

    def fetch_bytes(self, name: str) -> int | None:
        """Bytes to download before a model can be loaded (16 bits a weight); None if unknown."""
        if self._resolver.find(name) is not None:
            return 0
        info = self.info(name)
        return None if info is None else weights_bytes(info, torch.bfloat16)

    def memory_budget(self, spec: RunSpec, tokens: int) -> MemoryBudget | None:
        """The memory of a spec with a prompt of `tokens` tokens; None if its model is unknown.

        Models that loading it would evict count as free, and so does the model itself. Raises
        InsufficientMemoryError naming `model` if it does not fit.
        """
        free = self._free_after_eviction(_key(spec))
        if decodes_causally(spec):
            return self.guiders.decoder_budget(spec, tokens, free)
        info = self.info(spec.model)
        main_device(spec.device, free)
        guider_bytes = self.guiders.planned_bytes(spec, tokens) or 0
        return None if info is None else plan_memory(spec, info, tokens, free, guider_bytes)

    def fetch(self, spec: RunSpec) -> Generator[ByteProgress, None, None]:
        """Download the models that a spec needs, if they are not on disk.

        Whether the run fits is checked again once their configs and tokenizers are here; see
        Hub.fetch.
        """
        if decodes_causally(spec):
            yield from self.guiders.fetch_decoder(spec)
            return

        def check(model: Path, guider: Path | None = None) -> None:
            info, tokenizer = read_model_info(model), self._tokenizer_of(model)
            prompt = checked_prompt(spec, tokenizer, info)
            check_model(spec, info)
            check_context(len(prompt), spec, info)
            self.guiders.check(spec, tokenizer, info, prompt, guider)
            guider_bytes = self.guiders.planned_bytes(spec, len(prompt), guider) or 0
            free = self._free_after_eviction(_key(spec))
            plan_memory(spec, info, len(prompt), free, guider_bytes)

        yield from self._resolver.fetch(spec.model, check)
        model = self._resolver.find(spec.model)
        assert model is not None, "it has been fetched"
        yield from self.guiders.fetch(spec, partial(check, model))

    def load(self, spec: RunSpec) -> LoadedModel:
        """The diffusion model of a spec in its number format on its device."""
        return run_to_end(self._load(spec))

    def load_to_run(self, spec: RunSpec) -> LoadedModel | Guider:
        """The model that decodes a spec, in its number format on its device."""
        return run_to_end(self.load_with_progress(spec))

    def load_with_progress(
        self, spec: RunSpec, tokens: int = 1, keep: Collection[RunSpec] = ()
    ) -> Generator[ByteProgress, None, LoadedModel | Guider]:
        """`load_to_run` with its progress, leaving memory for a prompt of `tokens` tokens.

        The models of the specs `keep` are not evicted.
        """
        if decodes_causally(spec):
            return (yield from self.guiders.load_decoder(spec))
        return (yield from self._load(spec, tokens, keep))

    def _load(
        self, spec: RunSpec, tokens: int = 1, keep: Collection[RunSpec] = ()
    ) -> Generator[ByteProgress, None, LoadedModel]:
        """Load the diffusion model of a spec, and its guider."""
        key, folder = _key(spec), self._resolver.find(spec.model)
        tokenizer = self.tokenizer(spec.model)
        assert folder is not None, "a tokenizer is in its model's folder"
        if key not in self._loaded:
            info, dtype, files = read_model_info(folder), dtype_of(spec), Checkpoint(folder)
            run = spec_run_bytes(spec, info, tokens)
            run += self.guiders.planned_bytes(spec, tokens) or 0
            self._evict_until_fits(spec, info, run, {_key(other) for other in keep})
            digest = yield from files.digest_steps()
            spill = cache_path(digest, f"offload-{spec.dtype}")
            placing = plan_placement(info, dtype, spec.device, spill, run)
            before = free_bytes()
            kind = folder_adapter_class(folder)
            adapter = yield from kind.load(files, dtype, placing, tokenizer.stop_ids)
            main, after = main_device(spec.device, before), free_bytes()
            self._loaded[key] = LoadedModel(
                adapter,
                tokenizer,
                digest,
                folder,
                make_run_guider=partial(self.guiders.make_run_guider, tokenizer, info),
                loading={"free_before_bytes": before[main], "free_after_bytes": after[main]},
            )
        self._loaded.move_to_end(key)
        yield from self.guiders.load(spec)
        return self._loaded[key]

    def _tokenizer_of(self, folder: Path) -> Tokenizer:
        if folder not in self._tokenizers:
            self._tokenizers[folder] = Tokenizer(folder)
        return self._tokenizers[folder]

    def _evictable(self, kept: Collection[Key]) -> list[Key]:
        """Loaded models that may be evicted, the one used longest ago first."""
        return [key for key in list(self._loaded) if key not in kept and not _is_embedded(key[0])]

    def _free_after_eviction(self, own: Key) -> dict[str, int]:
        """Bytes free by device once the model `own` and all evictable ones have been freed.

        Iterates over a copy, because another thread may be loading.
        """
        freed = [
            one for key, one in list(self._loaded.items()) if key == own or not _is_embedded(key[0])
        ]
        held = held_bytes(one.adapter for one in freed)
        return {name: count + held[name] for name, count in free_bytes().items()}

    def _evict_until_fits(
        self, spec: RunSpec, info: ModelInfo, run: int, kept: Collection[Key]
    ) -> None:
        """Evict models until the model of `spec` fits; InsufficientMemoryError if impossible."""
        dtype, main = dtype_of(spec), main_device(spec.device, free_bytes())
        while evictable := self._evictable(kept):
            if len(evictable) < MAX_LOADED and fits(info, dtype, main, run):
                break
            del self._loaded[evictable[0]]
            free_memory()
        check_fits(info, dtype, spec.device, run)

    def _describe(self, name: str) -> dict[str, Any]:
        known = REGISTERED.get(name)
        row: dict[str, Any] = {
            "name": name, "title": known.title if known else name,
            "licence": known.licence if known else "", "embedded": _is_embedded(name),
            "registered": known is not None, "available": False, "family": "",
            "max_length": 0, "parameters": 0, "active_parameters": 0, "fetch_bytes": 0,
            "presets": [preset.to_dict() for preset in known.presets] if known else [],
        }  # fmt: skip
        try:
            row["available"] = self._resolver.find(name) is not None
            info = self.info(name)
        except CheckpointError as error:
            return row | {"error": str(error)}
        assert info is not None, "what is listed is on disk or registered"
        return row | {
            "family": info.family, "max_length": info.max_length,
            "parameters": parameters(info), "fetch_bytes": self.fetch_bytes(name),
            "active_parameters": active_parameters(info) if info.experts else parameters(info),
        }  # fmt: skip


def checked_prompt(spec: RunSpec, tokenizer: Tokenizer, info: ModelInfo) -> list[int]:
    """The ids of a spec's prompt; ValueError naming `chat` if the model lacks one of them."""
    ids = prompt_ids(spec, tokenizer)
    if max(ids, default=0) >= info.vocab_size:
        raise ValueError(
            f"chat: the prompt's token {max(ids)} is beyond the model's {info.vocab_size}; switch "
            "the template off"
        )
    return ids


def _key(spec: RunSpec) -> Key:
    return spec.model, spec.dtype, spec.device


def _is_embedded(name: str) -> bool:
    """Whether the repository contains a model of this name."""
    return name in REGISTERED and REGISTERED[name].embedded
