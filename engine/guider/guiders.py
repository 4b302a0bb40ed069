"""Guiders: the autoregressive models that a run may name, found, fetched and loaded on demand."""

from __future__ import annotations

import gc
from collections import OrderedDict
from collections.abc import Generator, Sequence
from functools import cache
from pathlib import Path

import torch

from engine.catalog import make_unmasker
from engine.decode.guided import Guided
from engine.guider.guider import (
    Guider,
    cached_numbers,
    count_parameters,
    load_guider,
    read_config,
)
from engine.guider.guiding import Guiding
from engine.guider.match import Match
from engine.hub import Hub
from engine.models.base import ModelInfo
from engine.models.estimate import free_bytes, main_of
from engine.models.pretrained import Progress
from engine.models.weights import CheckpointError, read_json
from engine.room import dtype_of
from engine.spec import RunSpec
from engine.stock import Stock
from engine.text import Tokenizer

ASSETS = Path(__file__).parents[2] / "assets"
SIZES = ("0.5B", "1.5B", "3B", "7B", "Math-1.5B", "Math-7B")
HUB = tuple(f"Qwen/Qwen2.5-{size}-Instruct" for size in SIZES)
IN_MEMORY = 2
CAUSAL = "ForCausalLM"


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


class Guiders:
    """Guiders of a stock; the last few that were used stay in memory.

    Raises ValueError naming `guided.guider`, and for a spec the knob that is wrong.
    """

    def __init__(self, stock: Stock) -> None:
        self._stock = stock
        self._loaded: OrderedDict[tuple[Path, str, str], Guider] = OrderedDict()
        self._matches: dict[tuple[Path, Tokenizer, ModelInfo], Match] = {}

    @classmethod
    def of(cls, hub: Hub | None, public: bool) -> Guiders:
        """The embedded guiders and those of the Hub; on a `public` page those of HUB alone."""
        return cls(Stock(embedded_guiders(), hub, public, HUB))

    @property
    def names(self) -> list[str]:
        """What may be chosen by name."""
        return self._stock.names

    def find(self, name: str) -> Path | None:
        """The folder of a guider; None where it must be fetched first."""
        try:
            return self._stock.find(name)
        except ValueError as error:
            raise ValueError(_renamed(error)) from None

    def fetch(self, spec: RunSpec) -> Generator[Progress, None, None]:
        """Bring the guider of a spec to this machine, where it has one that is not."""
        rule = rule_of(spec)
        if rule is not None and self.find(rule.guider) is None:
            yield from self._stock.fetch(rule.guider, _readable)

    def check(
        self, spec: RunSpec, tokenizer: Tokenizer, info: ModelInfo, prompt: list[int]
    ) -> None:
        """Refuse a spec whose guider cannot guide its model, nothing loaded."""
        rule = rule_of(spec)
        folder = None if rule is None else self.find(rule.guider)
        if rule is None or folder is None:
            return
        match = self._match(tokenizer, info, folder)
        match.check(rule)
        match.prompt(rule, spec, prompt)

    def bytes_of(self, spec: RunSpec, tokens: int) -> int:
        """What the guider of a spec needs yet, with its cache; 0 where there is none, or unknown.

        A prompt of so many tokens; weights that are in memory are not needed again.
        """
        rule = rule_of(spec)
        folder = None if rule is None else self.find(rule.guider)
        if rule is None or folder is None:
            return 0
        numbers = cached_numbers(read_config(folder)) * (tokens + spec.gen_length)
        if self._key(spec, rule) not in self._loaded:
            numbers += _parameters(folder)
        return numbers * dtype_of(spec).itemsize

    def planned_bytes(self, spec: RunSpec, tokens: int) -> int | None:
        """`bytes_of`, but None for a guider that must be fetched before they are known."""
        rule = rule_of(spec)
        unknown = rule is not None and self.find(rule.guider) is None
        return None if unknown else self.bytes_of(spec, tokens)

    def loading(self, spec: RunSpec) -> Generator[Progress, None, None]:
        """Load the guider of a spec where it has one that is not in memory; one word before."""
        rule = rule_of(spec)
        folder = None if rule is None else self.find(rule.guider)
        if rule is None or folder is None or self._key(spec, rule) in self._loaded:
            return
        yield Progress(0, _parameters(folder) * dtype_of(spec).itemsize)
        self._load(spec, rule, folder)

    def guiding(
        self,
        tokenizer: Tokenizer,
        info: ModelInfo,
        asked: Sequence[RunSpec],
        prompts: list[list[int]],
    ) -> Guiding:
        """The guider of a run, loaded where it is not; `asked` are the specs of its sequences."""
        spec = asked[0]
        rule = rule_of(spec)
        assert rule is not None, "asked for guided runs only"
        folder = self.find(rule.guider)
        if folder is None:
            raise ValueError(f"guided.guider: {rule.guider} is not on this machine; run it first")
        match = self._match(tokenizer, info, folder)
        match.check(rule)
        return match.guiding(self._load(spec, rule, folder), rule, asked, prompts)

    def _load(self, spec: RunSpec, rule: Guided, folder: Path) -> Guider:
        key = self._key(spec, rule)
        if key not in self._loaded:
            while len(self._loaded) >= IN_MEMORY:
                self._loaded.popitem(last=False)
                gc.collect()
                torch.cuda.empty_cache()
            device = torch.device(main_of(spec.device, free_bytes()))
            try:
                self._loaded[key] = load_guider(rule.guider, folder, dtype_of(spec), device)
            except CheckpointError as error:
                raise ValueError(f"guided.guider: {error}") from None
        self._loaded.move_to_end(key)
        return self._loaded[key]

    def _match(self, tokenizer: Tokenizer, info: ModelInfo, folder: Path) -> Match:
        key = folder, tokenizer, info
        if key not in self._matches:
            try:
                self._matches[key] = Match.of(tokenizer, info, folder)
            except CheckpointError as error:
                raise ValueError(f"guided.guider: {error}") from None
        return self._matches[key]

    def _key(self, spec: RunSpec, rule: Guided) -> tuple[Path, str, str]:
        return self.find(rule.guider) or Path(), spec.dtype, spec.device


def rule_of(spec: RunSpec) -> Guided | None:
    """The unmasker of a spec where a guider is part of it."""
    rule = make_unmasker(spec)
    return rule if isinstance(rule, Guided) else None


def _readable(folder: Path) -> None:
    """CheckpointError where a folder's config is not a guider's."""
    read_config(folder)


@cache
def _parameters(folder: Path) -> int:
    return count_parameters(read_config(folder))


def _renamed(error: ValueError) -> str:
    """A refusal of the stock, which speaks of models, for the knob that named one."""
    return "guided.guider:" + str(error).removeprefix("model:")
