"""Guiders: the autoregressive models that a run may name, found, fetched and loaded on demand."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import MappingProxyType

import torch

from engine.catalog import make_unmasker
from engine.config.spec import RunSpec
from engine.core.device import free_memory
from engine.core.files import ASSETS
from engine.guider.model import (
    Guider,
    cached_numbers,
    count_parameters,
    load_guider,
    read_config,
)
from engine.guider.run_guider import GuiderMatch, RunGuider
from engine.models.base import ModelInfo
from engine.models.loading.checkpoint import CheckpointError, read_json
from engine.models.loading.hub import Hub
from engine.models.loading.memory_estimate import free_bytes, main_of
from engine.models.loading.pretrained import Progress
from engine.models.loading.resolver import ModelResolver
from engine.models.tokenizer import Tokenizer
from engine.serve.memory_budget import dtype_of
from engine.unmask.methods.guided import Guided

IN_MEMORY = 2
CAUSAL = "ForCausalLM"
Key = tuple[Path, str, str]


@dataclass(frozen=True)
class Size:
    """Numbers in a guider's weights, and in its keys and values of one token."""

    weights: int
    cached: int


_SMALL, _LARGE = Size(1_543_714_304, 14_336), Size(7_615_616_512, 28_672)
HUB: Mapping[str, Size] = MappingProxyType({  # as published, at 16 bits
    "Qwen/Qwen2.5-0.5B-Instruct": Size(494_032_768, 6_144),
    "Qwen/Qwen2.5-1.5B-Instruct": _SMALL,
    "Qwen/Qwen2.5-3B-Instruct": Size(3_085_938_688, 18_432),
    "Qwen/Qwen2.5-7B-Instruct": _LARGE,
    "Qwen/Qwen2.5-Math-1.5B-Instruct": _SMALL,
    "Qwen/Qwen2.5-Math-7B-Instruct": _LARGE,
})  # fmt: skip


def embedded_guiders(assets: Path = ASSETS) -> dict[str, Path]:
    """Folders under `assets/models` of autoregressive models, by name."""
    found = {}
    for config in sorted((assets / "models").glob("*/config.json")):
        try:
            named = read_json(config).get("architectures") or [""]
        except CheckpointError:
            continue
        if str(named[0]).endswith(CAUSAL):
            found[config.parent.name] = config.parent
    return found


class GuiderPool:
    """Guiders of a stock; the last few that were used stay in memory.

    Raises ValueError naming `guided.guider`, and for a spec the knob that is wrong.
    """

    def __init__(self, stock: ModelResolver) -> None:
        self._stock = stock
        self._loaded: OrderedDict[Key, Guider] = OrderedDict()
        self._matches: dict[tuple[Path, Tokenizer, ModelInfo], GuiderMatch] = {}

    @classmethod
    def of(cls, hub: Hub | None, public: bool) -> GuiderPool:
        """The embedded guiders and those of the Hub; on a `public` page those of HUB alone."""
        return cls(ModelResolver(embedded_guiders(), hub, public, tuple(HUB), "guided.guider"))

    @property
    def names(self) -> list[str]:
        """What may be chosen by name."""
        return self._stock.names

    def find(self, name: str) -> Path | None:
        """The folder of a guider; None where it must be fetched first."""
        return self._stock.find(name)

    def fetch(self, spec: RunSpec, fits: Callable[[Path], None]) -> Generator[Progress, None, None]:
        """Bring the guider of a spec to this machine, where it has one that is not.

        `fits` is given its folder before the weights come; see Hub.fetch.
        """
        rule = guided_unmasker(spec)
        if rule is not None:
            yield from self._stock.fetch(rule.guider, fits)

    def fetch_bytes(self, spec: RunSpec) -> int:
        """Bytes to fetch before the guider of a spec can be loaded, where they are known."""
        rule, folder = self._asked(spec)
        if rule is None or folder is not None or rule.guider not in HUB:
            return 0
        return HUB[rule.guider].weights * torch.bfloat16.itemsize

    def check(
        self,
        spec: RunSpec,
        tokenizer: Tokenizer,
        info: ModelInfo,
        prompt: list[int],
        folder: Path | None = None,
    ) -> None:
        """Refuse a spec whose guider cannot guide its model, nothing loaded.

        `folder` is that of a guider whose weights are not there yet.
        """
        rule, folder = self._asked(spec, folder)
        if rule is None or folder is None:
            return
        match = self._match(tokenizer, info, folder)
        match.check(rule)
        match.prompt(rule, spec, prompt)

    def bytes_of(self, spec: RunSpec, tokens: int, folder: Path | None = None) -> int:
        """`planned_bytes`, 0 where they are not known."""
        return self.planned_bytes(spec, tokens, folder) or 0

    def planned_bytes(self, spec: RunSpec, tokens: int, folder: Path | None = None) -> int | None:
        """What the guider of a spec needs yet, with its cache; None where it is not known.

        A prompt of so many tokens; weights that are in memory are not needed again. `folder` as
        in `check`.
        """
        rule, folder = self._asked(spec, folder)
        if rule is None:
            return 0
        size = HUB.get(rule.guider) if folder is None else _size(folder)
        if size is None:
            return None
        numbers = size.cached * (tokens + spec.gen_length)
        if folder is None or _key(spec, folder) not in self._loaded:
            numbers += size.weights
        return numbers * dtype_of(spec).itemsize

    def loading(self, spec: RunSpec) -> Generator[Progress, None, None]:
        """Load the guider of a spec where it has one that is not in memory; one word before."""
        rule, folder = self._asked(spec)
        if rule is None or folder is None or _key(spec, folder) in self._loaded:
            return
        yield Progress(0, _size(folder).weights * dtype_of(spec).itemsize)
        self._load(spec, rule, folder)

    def run_guider(
        self,
        tokenizer: Tokenizer,
        info: ModelInfo,
        asked: Sequence[RunSpec],
        prompts: list[list[int]],
    ) -> RunGuider:
        """The guider of a run, loaded where it is not; `asked` are the specs of its sequences."""
        spec = asked[0]
        rule, folder = self._asked(spec)
        assert rule is not None, "asked for guided runs only"
        if folder is None:
            raise ValueError(f"guided.guider: {rule.guider} is not on this machine; run it first")
        match = self._match(tokenizer, info, folder)
        match.check(rule)
        return match.run_guider(self._load(spec, rule, folder), rule, asked, prompts)

    def _asked(
        self, spec: RunSpec, folder: Path | None = None
    ) -> tuple[Guided | None, Path | None]:
        """The rule of a guided spec and its guider's folder, `folder` where that is given.

        None for what is not there.
        """
        rule = guided_unmasker(spec)
        return rule, None if rule is None else folder or self.find(rule.guider)

    def _load(self, spec: RunSpec, rule: Guided, folder: Path) -> Guider:
        key = _key(spec, folder)
        if key not in self._loaded:
            while len(self._loaded) >= IN_MEMORY:
                self._loaded.popitem(last=False)
                free_memory()
            device = torch.device(main_of(spec.device, free_bytes()))
            try:
                self._loaded[key] = load_guider(rule.guider, folder, dtype_of(spec), device)
            except CheckpointError as error:
                raise ValueError(f"guided.guider: {error}") from None
        self._loaded.move_to_end(key)
        return self._loaded[key]

    def _match(self, tokenizer: Tokenizer, info: ModelInfo, folder: Path) -> GuiderMatch:
        key = folder, tokenizer, info
        if key not in self._matches:
            try:
                self._matches[key] = GuiderMatch.of(tokenizer, info, folder)
            except CheckpointError as error:
                raise ValueError(f"guided.guider: {error}") from None
        return self._matches[key]


def guided_unmasker(spec: RunSpec) -> Guided | None:
    """The unmasker of a spec where a guider is part of it."""
    rule = make_unmasker(spec)
    return rule if isinstance(rule, Guided) else None


def _key(spec: RunSpec, folder: Path) -> Key:
    return folder, spec.dtype, spec.device


@cache
def _size(folder: Path) -> Size:
    config = read_config(folder)
    return Size(count_parameters(config), cached_numbers(config))
