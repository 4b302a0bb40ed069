"""GuiderPool: autoregressive models that guide a run or decode it, fetched and loaded on demand."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Collection, Generator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import Any

import torch
from torch import nn

from engine.catalog import make_rule
from engine.config.spec import RunSpec
from engine.core.device import free_memory
from engine.core.files import ASSETS
from engine.core.progress import Progress
from engine.estimate.gpu_time import GpuSpec, guider_seconds
from engine.guider.model import (
    Guider,
    cache_numbers_per_token,
    causal_info,
    count_parameters,
    find_stop_ids,
    load_guider,
    read_config,
)
from engine.guider.run_guider import GuiderMatch, RunGuider
from engine.models.base import ModelInfo
from engine.models.loading.checkpoint import Checkpoint, CheckpointError
from engine.models.loading.families import embedded_guiders
from engine.models.loading.hub import Hub
from engine.models.loading.memory_estimate import (
    check_fits,
    device_key,
    dtype_of,
    free_bytes,
    main_device,
    needed_bytes,
    run_bytes,
    weights_bytes,
)
from engine.models.loading.resolver import ModelResolver
from engine.models.tokenizer import Tokenizer, conversation
from engine.serve.loaded_model import check_context
from engine.serve.memory_budget import MemoryBudget, held_bytes
from engine.unmask.base import Unmasker
from engine.unmask.methods.autoregressive import Autoregressive
from engine.unmask.methods.guided import Guided

MAX_LOADED = 2
DECODER = "autoregressive.model"


@dataclass(frozen=True)
class GuiderSize:
    """Numbers in a guider's weights, and in its keys and values of one token."""

    weights: int
    cache_per_token: int


_SMALL, _LARGE = GuiderSize(1_543_714_304, 14_336), GuiderSize(7_615_616_512, 28_672)
HUB_GUIDERS: Mapping[str, GuiderSize] = MappingProxyType({  # as published, at 16 bits
    "Qwen/Qwen2.5-0.5B-Instruct": GuiderSize(494_032_768, 6_144),
    "Qwen/Qwen2.5-1.5B-Instruct": _SMALL,
    "Qwen/Qwen2.5-3B-Instruct": GuiderSize(3_085_938_688, 18_432),
    "Qwen/Qwen2.5-7B-Instruct": _LARGE,
    "Qwen/Qwen2.5-Math-1.5B-Instruct": _SMALL,
    "Qwen/Qwen2.5-Math-7B-Instruct": _LARGE,
})  # fmt: skip


def decodes_causally(spec: RunSpec) -> bool:
    """Whether a causal model decodes a spec, in place of its model."""
    return isinstance(make_rule(spec), Autoregressive)


def check_rule(spec: RunSpec) -> None:
    """Raise ValueError naming `images`, `stop` or `suffix` if a spec's unmasker takes none."""
    rule = make_rule(spec)
    for name in ("images", "stop", "suffix"):
        if getattr(spec, name) and not isinstance(rule, Unmasker):
            raise ValueError(
                f"{name}: an autoregressive model takes none; leave it out or choose another "
                "unmasker"
            )
    if spec.images and rule.guided:
        raise ValueError(
            "images: the guider reads text only; remove the image or choose another unmasker"
        )


class GuiderPool:
    """Finds causal models by name and keeps the most recently used ones in memory.

    They guide a run (the methods named after guiders) or decode it (those named after decoders).
    They are embedded or come from the Hub, on a `public` page only HUB_GUIDERS. Methods raise
    ValueError naming `guided.guider`, `autoregressive.model`, or another knob of the spec that is
    wrong. Their `folder` is that of a guider whose weights are not on disk yet.
    """

    def __init__(self, hub: Hub | None, public: bool) -> None:
        named = embedded_guiders(ASSETS), hub, public, tuple(HUB_GUIDERS)
        self._resolver = ModelResolver(*named, "guided.guider")
        self._decoders = ModelResolver(*named, DECODER)
        self._loaded: OrderedDict[tuple[Path, str, str], Guider] = OrderedDict()
        self._matches: dict[tuple[Path, Tokenizer, ModelInfo], GuiderMatch] = {}

    @property
    def names(self) -> list[str]:
        """Names of the listed guiders."""
        return self._resolver.names

    def fetch(self, spec: RunSpec, fits: Callable[[Path], None]) -> Generator[Progress, None, None]:
        """Fetch the guider of a spec if it is not on disk.

        `fits` gets its folder before the weights are fetched; see Hub.fetch.
        """
        settings, folder = self._settings_and_folder(spec)
        if settings is not None and folder is None:
            yield from self._resolver.fetch(settings.guider, fits)

    def fetch_bytes(self, spec: RunSpec) -> int:
        """Bytes to fetch before the guider of a spec can be loaded, 0 if unknown."""
        settings, folder = self._settings_and_folder(spec)
        if settings is None or folder is not None or settings.guider not in HUB_GUIDERS:
            return 0
        return HUB_GUIDERS[settings.guider].weights * torch.bfloat16.itemsize

    def check(
        self,
        spec: RunSpec,
        tokenizer: Tokenizer,
        info: ModelInfo,
        prompt: list[int],
        folder: Path | None = None,
    ) -> None:
        """Raise ValueError if a spec's guider cannot guide its model; nothing is loaded."""
        settings, folder = self._settings_and_folder(spec, folder)
        if settings is None or folder is None:
            return
        match = self._match(tokenizer, info, folder)
        match.check(settings)
        match.prompt(settings, spec, prompt)

    def planned_bytes(self, spec: RunSpec, tokens: int, folder: Path | None = None) -> int | None:
        """Memory that a spec's guider and its cache still need; None if unknown.

        The prompt has `tokens` tokens. Weights that are in memory are not counted.
        """
        settings, folder = self._settings_and_folder(spec, folder)
        if settings is None:
            return 0
        size = HUB_GUIDERS.get(settings.guider) if folder is None else _size(folder)
        if size is None:
            return None
        numbers = size.cache_per_token * (tokens + spec.gen_length)
        if folder is None or _key(spec, folder) not in self._loaded:
            numbers += size.weights
        return numbers * dtype_of(spec).itemsize

    def load(self, spec: RunSpec, keep: Collection[RunSpec]) -> Generator[Progress, None, None]:
        """Load a spec's guider if need be, evicting none of `keep`; yields once, before loading."""
        settings, folder = self._settings_and_folder(spec)
        if settings is None or folder is None or _key(spec, folder) in self._loaded:
            return
        yield Progress(0, _size(folder).weights * dtype_of(spec).itemsize)
        self._load(spec, settings.guider, folder, keep)

    def make_run_guider(
        self,
        tokenizer: Tokenizer,
        info: ModelInfo,
        specs: Sequence[RunSpec],
        prompts: list[list[int]],
    ) -> RunGuider:
        """Prepare the guider of a run, given the spec and prompt of each sequence; may load it."""
        spec = specs[0]
        settings, folder = self._settings_and_folder(spec)
        assert settings is not None, "only guided runs have a guider"
        if folder is None:
            raise ValueError(
                f"guided.guider: {settings.guider} is not on this machine; run it first"
            )
        match = self._match(tokenizer, info, folder)
        match.check(settings)
        guider = self._load(spec, settings.guider, folder, specs)
        return match.run_guider(guider, settings, specs, prompts)

    def seconds(self, gpu: GpuSpec, spec: RunSpec, plan: Mapping[str, Any]) -> float:
        """The most seconds that a spec's guider adds to a run with this plan on a GPU; computed.

        0 without a guider, and if its sizes are unknown.
        """
        settings, folder = self._settings_and_folder(spec)
        if settings is None or folder is None:
            return 0.0
        try:
            info = _decoder_info(folder)
        except ValueError:  # of another layout
            return 0.0
        return guider_seconds(gpu, spec, info, plan, settings.block)

    def digest(self, spec: RunSpec) -> str:
        """What identifies the weights of a spec's guider; empty if it is not on disk."""
        folder = self._settings_and_folder(spec)[1]
        return "" if folder is None else Checkpoint(folder).digest()

    def decoder_info(self, spec: RunSpec) -> ModelInfo | None:
        """Sizes of the causal model that decodes a spec; None if it is not on disk."""
        folder = self.decoder_folder(spec)
        return None if folder is None else _decoder_info(folder)

    def decoder_folder(self, spec: RunSpec) -> Path | None:
        """Folder of the causal model that decodes a spec; None if it must be downloaded first."""
        return self._decoders.find(_decoder_name(spec))

    def decoder_prompt(self, spec: RunSpec, folder: Path | None = None) -> list[int] | None:
        """The ids of a spec's prompt in the vocabulary of its decoder; None if not on disk.

        Raises ValueError naming `prompt`, or `chat` if the model has no template.
        """
        folder = folder or self.decoder_folder(spec)
        if folder is None:
            conversation(spec.prompt, spec.messages)
            return None
        return _tokenizer(folder).encode_prompt(spec.prompt, spec.messages, spec.chat)

    def decoder_fetch_bytes(self, spec: RunSpec) -> int | None:
        """Bytes to download before the decoder of a spec can be loaded; None if unknown."""
        if self.decoder_folder(spec) is not None:
            return 0
        known = HUB_GUIDERS.get(_decoder_name(spec))
        return None if known is None else known.weights * torch.bfloat16.itemsize

    def decoder_budget(
        self, spec: RunSpec, tokens: int, free: Mapping[str, int], folder: Path | None = None
    ) -> MemoryBudget | None:
        """Memory of a spec's decoder with a prompt of `tokens` tokens; None if not on disk.

        Its own weights count as free if they are in memory. Raises InsufficientMemoryError if it
        does not fit into the bytes `free` by device.
        """
        folder = folder or self.decoder_folder(spec)
        if folder is None:
            return None
        dtype, info, main = dtype_of(spec), _decoder_info(folder), main_device(spec.device, free)
        run, weights = _decoder_run_bytes(spec, tokens, folder), weights_bytes(info, dtype)
        loaded = self._loaded.get(_key(spec, folder))
        if loaded is not None:
            free = {**free, main: free[main] + held_bytes([loaded.model])[main]}
        check_fits(info, dtype, main, run, free)
        kept = _decoder_cache_bytes(spec, tokens, folder)
        return MemoryBudget(weights, weights + run, free[main], kept)

    def decoder_bytes(self, spec: RunSpec, tokens: int) -> int:
        """Bytes that must be free to run a spec's decoder, which is on disk.

        Those of the run, and of the weights unless they are in memory.
        """
        folder = self.decoder_folder(spec)
        assert folder is not None, "it has been fetched"
        run, dtype = _decoder_run_bytes(spec, tokens, folder), dtype_of(spec)
        if _key(spec, folder) in self._loaded:
            return run
        main = main_device(spec.device, free_bytes())  # it is not spread over devices
        return needed_bytes(_decoder_info(folder), dtype, main, run)

    def fetch_decoder(
        self, spec: RunSpec, free: Callable[[], Mapping[str, int]]
    ) -> Generator[Progress, None, None]:
        """Fetch the decoder of a spec if it is not on disk and its run fits; see Hub.fetch.

        `free` gives the bytes by device that are free for it.
        """

        def check(folder: Path) -> None:
            prompt = self.decoder_prompt(spec, folder) or []
            check_context(len(prompt), spec, _decoder_info(folder))
            self.decoder_budget(spec, len(prompt), free(), folder)

        yield from self._decoders.fetch(_decoder_name(spec), check)

    def load_decoder(
        self, spec: RunSpec, keep: Collection[RunSpec]
    ) -> Generator[Progress, None, Guider]:
        """As `load`, the decoder of a spec."""
        folder = self.decoder_folder(spec)
        assert folder is not None, "it has been fetched"
        if _key(spec, folder) not in self._loaded:
            yield Progress(0, _size(folder).weights * dtype_of(spec).itemsize)
        return self._load(spec, _decoder_name(spec), folder, keep)

    def unused(self, specs: Collection[RunSpec]) -> list[nn.Module]:
        """The models in memory that none of the specs needs."""
        needed = {self._needed_key(spec) for spec in specs}
        return [one.model for key, one in list(self._loaded.items()) if key not in needed]

    def evict_unused(self, specs: Collection[RunSpec], most: int = 0) -> None:
        """Free the memory of the models that no spec needs, all but the `most` used last."""
        needed = {self._needed_key(spec) for spec in specs}
        unused = [key for key in self._loaded if key not in needed]
        for key in unused[: max(len(unused) - most, 0)]:
            del self._loaded[key]
        free_memory()

    def _needed_key(self, spec: RunSpec) -> tuple[Path, str, str] | None:
        """The key of the model that guides or decodes a spec; None if there is none on disk."""
        causal = decodes_causally(spec)
        folder = self.decoder_folder(spec) if causal else self._settings_and_folder(spec)[1]
        return None if folder is None else _key(spec, folder)

    def _settings_and_folder(
        self, spec: RunSpec, folder: Path | None = None
    ) -> tuple[Guided | None, Path | None]:
        """A guided spec's unmasker, which has the settings, and its guider's folder, or None."""
        settings = make_rule(spec)
        if not isinstance(settings, Guided):
            return None, None
        return settings, folder or self._resolver.find(settings.guider)

    def _load(self, spec: RunSpec, name: str, folder: Path, keep: Collection[RunSpec]) -> Guider:
        key = _key(spec, folder)
        if key not in self._loaded:
            self.evict_unused(keep, MAX_LOADED - 1)
            device = torch.device(main_device(spec.device, free_bytes()))
            try:
                self._loaded[key] = load_guider(name, folder, dtype_of(spec), device)
            except CheckpointError as error:
                field = DECODER if decodes_causally(spec) else "guided.guider"
                raise ValueError(f"{field}: {error}") from None
        self._loaded.move_to_end(key)
        return self._loaded[key]

    def _match(self, tokenizer: Tokenizer, info: ModelInfo, folder: Path) -> GuiderMatch:
        key = folder, tokenizer, info
        if key not in self._matches:
            try:
                self._matches[key] = GuiderMatch.from_folder(tokenizer, info, folder)
            except CheckpointError as error:
                raise ValueError(f"guided.guider: {error}") from None
        return self._matches[key]


def _key(spec: RunSpec, folder: Path) -> tuple[Path, str, str]:
    return folder, spec.dtype, device_key(spec.device)


def _decoder_name(spec: RunSpec) -> str:
    rule = make_rule(spec)
    assert isinstance(rule, Autoregressive), "only autoregressive runs have a decoder"
    return rule.model


@cache
def _decoder_info(folder: Path) -> ModelInfo:
    """Raises ValueError naming `autoregressive.model` if a folder has no such model."""
    try:
        config = read_config(folder)
        return causal_info(config, find_stop_ids(_tokenizer(folder), config))
    except CheckpointError as error:
        raise ValueError(f"{DECODER}: {error}") from None


def _decoder_run_bytes(spec: RunSpec, tokens: int, folder: Path) -> int:
    """Bytes of a decoder's activations and of its keys and values."""
    dtype, length = dtype_of(spec), tokens + spec.gen_length
    step = run_bytes(_decoder_info(folder), dtype, length, rows=1)
    return step + _decoder_cache_bytes(spec, tokens, folder)


def _decoder_cache_bytes(spec: RunSpec, tokens: int, folder: Path) -> int:
    """Bytes of a decoder's keys and values."""
    numbers = _size(folder).cache_per_token * (tokens + spec.gen_length)
    return numbers * dtype_of(spec).itemsize


@cache
def _tokenizer(folder: Path) -> Tokenizer:
    return Tokenizer(folder)


@cache
def _size(folder: Path) -> GuiderSize:
    config = read_config(folder)
    return GuiderSize(count_parameters(config), cache_numbers_per_token(config))
