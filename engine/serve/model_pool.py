"""ModelPool: the models of a session, found, downloaded and loaded on demand."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Collection, Generator, Iterator, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import torch

from engine.catalog import check_model
from engine.config.spec import RunSpec
from engine.core.device import free_memory
from engine.core.progress import Progress, run_to_end
from engine.guider.model import Guider
from engine.models.base import ModelInfo
from engine.models.kernels.machine import choose_kernels
from engine.models.loading.checkpoint import Checkpoint, CheckpointError
from engine.models.loading.config import read_config
from engine.models.loading.families import adapter_class, read_model_info
from engine.models.loading.hub import Hub
from engine.models.loading.memory_estimate import (
    active_parameters,
    check_fits,
    device_key,
    dtype_of,
    free_bytes,
    main_device,
    needed_bytes,
    parameters,
    weights_bytes,
)
from engine.models.loading.placement import offload_folder, plan_placement
from engine.models.loading.registry import REGISTERED, describe_name, is_embedded
from engine.models.loading.resolver import ModelResolver, folder_tokenizer
from engine.models.tokenizer import Tokenizer, conversation
from engine.serve.guider_pool import GuiderPool, check_rule, decodes_causally
from engine.serve.loaded_model import LoadedModel, check_context, suffix_ids
from engine.serve.memory_budget import (
    InUse,
    MemoryBudget,
    held_bytes,
    plan_beside_paused,
    plan_memory,
    spec_run_bytes,
)
from engine.serve.number_format import NumberFormats
from engine.vision.config import NoTowerError, VisionInfo, folder_vision_info, vision_info
from engine.vision.encoder import ImageEncoder
from engine.vision.run_images import RunPrompt, check_takes, run_prompt, vision_bytes

MAX_LOADED = 2  # models kept in memory, apart from the embedded ones
Key = tuple[str, str, str]  # name, dtype, device


class ModelPool:
    """Models by name; the embedded ones stay in memory, of the others the MAX_LOADED used last.

    Its methods raise ValueError naming `model` or `device`, CheckpointError naming file or tensor.
    They take specs whose `dtype` is not `auto`; `formats` chooses.
    """

    def __init__(
        self, folders: Mapping[str, Path], hub: Hub | None = None, public: bool = False
    ) -> None:
        self._resolver = ModelResolver(folders, hub, public)
        self.guiders = GuiderPool(hub, public)
        self.formats = NumberFormats(self._resolver)
        self.in_use = InUse()
        self._loaded: OrderedDict[Key, LoadedModel] = OrderedDict()
        self._preloaded: list[RunSpec] = []
        self._tokenizers: dict[tuple[Path, str], Tokenizer] = {}
        self._visions: dict[Path, VisionInfo | CheckpointError | None] = {}

    def describe(self) -> Iterator[dict[str, Any]]:
        """The models that may be chosen, as plain data; each config is read when it is asked for.

        `available`: on disk. `parameters`: 0 if unknown. `images`: it takes images;
        `image_problem`: why it does not, though its config names a vision part. `error`: present if
        a config is invalid.
        """
        return map(self._describe, self._resolver.names)

    def info(self, name: str) -> ModelInfo | None:
        """Sizes and ids of a model that is on disk or registered; None of any other."""
        folder = self._resolver.find(name)
        if folder is None:
            known = REGISTERED.get(name)
            return adapter_class(known.config).read_info(known.config) if known else None
        return read_model_info(folder)

    def vision(self, name: str) -> VisionInfo | None:
        """The vision part of a model that is on disk or registered; None if it takes no images.

        Raises CheckpointError naming what is missing or not supported.
        """
        folder = self._resolver.find(name)
        if folder is not None:
            return self._vision_of(folder)
        known, info = REGISTERED.get(name), self.info(name)
        if known is None or not known.tower or info is None:
            return None
        return vision_info(known.config, **known.tower, d_model=info.d_model)

    def run_info(self, spec: RunSpec) -> ModelInfo | None:
        """Sizes and ids of the model that decodes a spec; None if they are unknown."""
        return self.guiders.decoder_info(spec) if decodes_causally(spec) else self.info(spec.model)

    def tokenizer(self, name: str) -> Tokenizer:
        """The tokenizer of a model that is on disk."""
        folder = self._resolver.find(name)
        if folder is None:
            raise ValueError(f"model: {name} is not on this machine yet; run it to fetch it")
        return self._tokenizer_of(name, folder)

    def drift_sources(self, spec: RunSpec) -> tuple[Path | None, str, Collection[tuple[str, str]]]:
        """A model's folder, if on disk; its digest, if loaded; the drifts measured on its copy."""
        digests = [one.digest for key, one in list(self._loaded.items()) if key[0] == spec.model]
        own, folder = self._loaded.get(_key(spec)), self._resolver.find(spec.model)
        return folder, digests[0] if digests else "", () if own is None else own.profiles

    def suffix_tokens(self, spec: RunSpec) -> int:
        """The number of tokens of a spec's suffix; 0 if its model is not on disk."""
        if not spec.suffix or self._resolver.find(spec.model) is None:
            return 0
        return len(self.tokenizer(spec.model).encode_text(spec.suffix))

    def prompt(self, spec: RunSpec) -> list[int] | None:
        """The ids of `run_prompt`; rows of images hold the padding id."""
        found = self.run_prompt(spec)
        return None if found is None else found.ids

    def run_prompt(self, spec: RunSpec) -> RunPrompt | None:
        """A spec's prompt with its images; None if its model is not on disk.

        Raises ValueError naming `prompt`, `chat`, `images`, `stop` or `suffix`.
        """
        check_rule(spec)
        if decodes_causally(spec):
            ids = self.guiders.decoder_prompt(spec)
            return None if ids is None else RunPrompt(ids)
        folder = self._resolver.find(spec.model)
        if folder is None:
            check_takes(spec, self.vision(spec.model))
            conversation(spec.prompt, spec.messages)
            return None
        info, vision = read_model_info(folder), self._vision_of(folder, spec)
        return run_prompt(spec, self.tokenizer(spec.model), info, vision)

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
        info, vision = self.info(name), self.vision(name)
        if info is None:
            return None
        more = 0 if vision is None else vision.parameters * torch.bfloat16.itemsize
        return weights_bytes(info, torch.bfloat16) + more

    def memory_budget(self, spec: RunSpec, tokens: int) -> MemoryBudget | None:
        """The memory of a spec with a prompt of `tokens` tokens; None if its model is unknown.

        Models that loading it would evict count as free, and so does the model itself; those of
        paused runs do not. Raises InsufficientMemoryError naming `model` if it does not fit.
        """

        def plan(free: Mapping[str, int]) -> MemoryBudget | None:
            if decodes_causally(spec):
                return self.guiders.decoder_budget(spec, tokens, free)
            info = self.info(spec.model)
            main_device(spec.device, free)
            more = self._more_bytes(spec, tokens)
            return None if info is None else plan_memory(spec, info, tokens, free, more)

        later = partial(self._free_without, [spec], spec)
        return plan_beside_paused(plan, self._free_after_eviction(spec), later)

    def fetch(self, spec: RunSpec) -> Generator[Progress, None, None]:
        """Download the models that a spec needs, if they are not on disk.

        Whether the run fits is checked again once their configs and tokenizers are here, of a spec
        without a prompt only whether the models fit in memory; see Hub.fetch.
        """
        if decodes_causally(spec):
            yield from self.guiders.fetch_decoder(spec, partial(self._free_after_eviction, spec))
            return

        def check(model: Path, guider: Path | None = None) -> None:
            info, tokenizer = read_model_info(model), self._tokenizer_of(spec.model, model)
            vision, tokens = self._listed_vision(spec, model), 1
            if spec.prompt or spec.messages:
                prompt = run_prompt(spec, tokenizer, info, vision).ids
                check_model(spec, info)
                check_context(len(prompt), spec, info, len(suffix_ids(spec, tokenizer)))
                self.guiders.check(spec, tokenizer, info, prompt, guider)
                tokens = len(prompt)
            more = self.guiders.planned_bytes(spec, tokens, guider) or 0
            more += vision_bytes(spec, vision, dtype_of(spec))
            plan_memory(spec, info, tokens, self._free_after_eviction(spec), more)

        yield from self._resolver.fetch(spec.model, check)
        model = self._resolver.find(spec.model)
        assert model is not None, "it has been fetched"
        yield from self.guiders.fetch(spec, partial(check, model))

    def load(self, spec: RunSpec) -> LoadedModel:
        """The diffusion model of a spec in its number format on its device."""
        return run_to_end(self._load(spec))

    def preload(self, spec: RunSpec) -> None:
        """`load` beside the models preloaded before; InsufficientMemoryError if it does not fit."""
        run_to_end(self._load(spec, keep=self._preloaded))
        self._preloaded.append(spec)

    def load_to_run(self, spec: RunSpec) -> LoadedModel | Guider:
        """The model that decodes a spec, in its number format on its device."""
        return run_to_end(self.load_with_progress(spec))

    def load_with_progress(
        self, spec: RunSpec, tokens: int = 1
    ) -> Generator[Progress, None, LoadedModel | Guider]:
        """`load_to_run` with its progress, leaving memory for a prompt of `tokens` tokens.

        Other models are evicted for it if that suffices, except those `in_use`.
        """
        if decodes_causally(spec):
            keep = [spec, *self.in_use.specs()]
            yield from self.in_use.retry(
                lambda: self.guiders.decoder_budget(spec, tokens, self._free_without(keep))
            )
            yield from self._make_room(spec.device, self.guiders.decoder_bytes(spec, tokens), keep)
            return (yield from self.guiders.load_decoder(spec, keep))
        return (yield from self._load(spec, tokens))

    def _load(
        self, spec: RunSpec, tokens: int = 1, keep: Collection[RunSpec] = ()
    ) -> Generator[Progress, None, LoadedModel]:
        """Load the diffusion model of a spec, and its guider."""
        key, folder = _key(spec), self._resolver.find(spec.model)
        tokenizer, keep = self.tokenizer(spec.model), [spec, *keep, *self.in_use.specs()]
        assert folder is not None, "a tokenizer is in its model's folder"
        lacks_vision = bool(spec.images) and key in self._loaded and not self._loaded[key].vision
        if lacks_vision and spec.device == "auto":  # its weights fill the devices; place it anew
            self._evict(key)
        info = read_model_info(folder)
        run = spec_run_bytes(spec, info, tokens) + self._more_bytes(spec, tokens)
        if key in self._loaded:
            yield from self._make_room(spec.device, run, keep)
        else:
            dtype, files = dtype_of(spec), Checkpoint(folder)
            yield from self._evict_until_fits(spec, info, run, keep)
            digest = yield from files.digest_steps()
            spill = offload_folder(digest, spec.dtype)
            placing = plan_placement(info, dtype, spec.device, spill, run)
            before = free_bytes()
            kind, ends = adapter_class(read_config(folder)), (tokenizer.stop_ids, tokenizer.fill_id)
            adapter = yield from kind.load(files, dtype, placing, *ends)
            choose_kernels(adapter)
            main, after = main_device(spec.device, before), free_bytes()
            self._loaded[key] = LoadedModel(
                adapter, tokenizer, digest, folder,
                make_run_guider=partial(self.guiders.make_run_guider, tokenizer, info),
                guider_digest=self.guiders.digest,
                loading={"free_before_bytes": before[main], "free_after_bytes": after[main]},
            )  # fmt: skip
        self._loaded.move_to_end(key)
        yield from self._load_vision(spec, key, folder)
        yield from self.guiders.load(spec, keep)
        return self._loaded[key]

    def _tokenizer_of(self, name: str, folder: Path) -> Tokenizer:
        """The tokenizer of a model in a folder; see `folder_tokenizer`."""
        key = folder, name
        if key not in self._tokenizers:
            self._tokenizers[key] = folder_tokenizer(name, folder)
        return self._tokenizers[key]

    def _load_vision(self, spec: RunSpec, key: Key, folder: Path) -> Iterator[Progress]:
        """Load the vision part of a spec's model, if the spec has images and it is not loaded."""
        model, vision = self._loaded[key], self._vision_of(folder, spec)
        if not spec.images or model.vision is not None or vision is None:
            return
        files, device = Checkpoint(folder), model.adapter.device
        encoder = yield from ImageEncoder.load(files, vision, dtype_of(spec), device)
        self._loaded[key] = replace(model, vision=encoder)

    def _vision_of(self, folder: Path, spec: RunSpec | None = None) -> VisionInfo | None:
        """The vision part of a folder; None if it takes no images.

        Raises CheckpointError naming what is missing or not supported; for a `spec` only if it has
        images, since such a model takes text.
        """
        found = self._visions[folder] if folder in self._visions else folder_vision_info(folder)
        if not isinstance(found, CheckpointError) or isinstance(found, NoTowerError):
            self._visions[folder] = found  # other errors can be mended while the program runs
        if not isinstance(found, CheckpointError):
            return found
        if spec is None:
            raise found
        if spec.images:
            raise ValueError(f"images: {found}")
        return None

    def _listed_vision(self, spec: RunSpec, folder: Path) -> VisionInfo | None:
        """`_vision_of`, before the weights of a listed model are in its folder."""
        known = REGISTERED.get(spec.model)
        if known is None or not known.tower:
            return self._vision_of(folder, spec) if any(folder.glob("*.safetensors")) else None
        config, info = read_config(folder), read_model_info(folder)
        return vision_info(config, **known.tower, d_model=info.d_model)

    def _more_bytes(self, spec: RunSpec, tokens: int) -> int:
        """Bytes of a spec's guider, and of the vision part if it has images."""
        more = self.guiders.planned_bytes(spec, tokens) or 0
        vision = self.vision(spec.model) if spec.images else None
        return more + vision_bytes(spec, vision, dtype_of(spec))

    def _evictable(self, keep: Collection[RunSpec]) -> list[Key]:
        """Loaded models that may be evicted, the one used longest ago first."""
        kept = {_key(spec) for spec in keep if not decodes_causally(spec)}
        return [key for key in list(self._loaded) if key not in kept and not is_embedded(key[0])]

    def _free_after_eviction(self, spec: RunSpec) -> dict[str, int]:
        """Bytes free by device at a spec's turn: models freed, but not those of paused runs."""
        return self._free_without([spec, *self.in_use.specs(paused=True)], spec)

    def _free_without(
        self, keep: Collection[RunSpec], own: RunSpec | None = None
    ) -> dict[str, int]:
        """Bytes free by device without evictable models but those of `keep`, and without `own`."""
        freed = set(self._evictable(keep))
        if own is not None and not decodes_causally(own):
            freed.add(_key(own))
        found = [one for key, one in list(self._loaded.items()) if key in freed]
        parts = [part for one in found for part in (one.adapter, one.vision) if part is not None]
        held = held_bytes([*parts, *self.guiders.unused(keep)])
        return {name: count + held[name] for name, count in free_bytes().items()}

    def _evict_until_fits(
        self, spec: RunSpec, info: ModelInfo, run: int, keep: Collection[RunSpec]
    ) -> Iterator[Progress]:
        """Evict models until that of `spec` fits, none in vain; else InsufficientMemoryError."""
        dtype, main = dtype_of(spec), main_device(spec.device, free_bytes())
        yield from self.in_use.retry(
            lambda: check_fits(info, dtype, spec.device, run, self._free_without(keep))
        )
        while len(evictable := self._evictable(keep)) >= MAX_LOADED:
            self._evict(evictable[0])
        yield from self._make_room(main, needed_bytes(info, dtype, main, run), keep)
        check_fits(info, dtype, spec.device, run)

    def _make_room(self, device: str, needed: int, keep: Collection[RunSpec]) -> Iterator[Progress]:
        """Evict models until `needed` bytes are free on a device, or all but those of `keep`."""
        main = main_device(device, free_bytes())
        if free_bytes()[main] < needed:
            self.guiders.evict_unused(keep)
            if free_bytes()[main] < needed:
                yield from self.in_use.end_stopped()
        while free_bytes()[main] < needed and (evictable := self._evictable(keep)):
            self._evict(evictable[0])

    def _evict(self, key: Key) -> None:
        del self._loaded[key]
        free_memory()

    def _describe(self, name: str) -> dict[str, Any]:
        row = describe_name(name)
        try:
            row["available"] = self._resolver.find(name) is not None
            info = self.info(name)
        except CheckpointError as error:
            return row | {"error": str(error)}
        assert info is not None, "what is listed is on disk or registered"
        count = parameters(info)
        try:
            vision = self.vision(name)
            row["images"] = vision is not None
            count += 0 if vision is None else vision.parameters
        except CheckpointError as error:
            row["image_problem"] = str(error)
        return row | {
            "family": info.family, "max_length": info.max_length,
            "attention": info.attention, "block_sizes": list(info.block_sizes),
            "parameters": count, "fetch_bytes": self.fetch_bytes(name),
            "active_parameters": active_parameters(info) if info.experts else count,
        }  # fmt: skip


def _key(spec: RunSpec) -> Key:
    return spec.model, spec.dtype, device_key(spec.device)
