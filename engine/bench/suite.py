"""Suites: the rows that the README's tables of speed are made of, as data."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import Any

from engine.bench.models import BenchModels
from engine.bench.trial import Case
from engine.catalog import derive_plan, policies
from engine.config.spec import RunSpec
from engine.core.files import ASSETS

CPU_SHAPE = "llada:layers=12,d=256,heads=8,ffn=688,vocab=2048"
CPU_PROMPTS = (64, 512)
PLAIN, DUAL = "plain decoding", "dual cache"
GPU_MODELS = {"llada": "LLaDA-8B", "dream": "Dream-7B"}
CAPTURED = ("none", "dual", "dllm_cache", "spa_cache")  # timed with no forward captured, too
GPU_PROMPT = 896  # with an answer of 128: 1,024 positions


@cache
def speed_settings() -> Mapping[str, Mapping[str, Any]]:
    """The rows of the speed tables: name of a method to the spec fields that it changes."""
    rows = json.loads((ASSETS / "results" / "speed.json").read_text("utf-8"))
    return MappingProxyType(
        {row["name"]: {key: row[key] for key in row if key != "name"} for row in rows}
    )


@dataclass(frozen=True)
class Setting:
    """A row before its model is there; `tokens` are those of a random prompt. See Case."""

    name: str
    spec: RunSpec
    tokens: int
    group: str = ""
    beside: str = ""
    eager: bool = False

    def case(self, models: BenchModels) -> Case:
        """The row with its model and its prompt."""
        model = models.model(self.spec, self.tokens)
        spec, prompt = models.prompt(self.spec, self.tokens)
        return Case(self.name, model, spec, [prompt], self.group, self.beside, self.eager)


def changed(spec: RunSpec, changes: Mapping[str, Any]) -> RunSpec:
    """A spec with other fields; keys with a dot are knobs."""
    return RunSpec.from_dict(spec.to_dict() | dict(changes))


def methods(base: RunSpec, tokens: int, group: str = "") -> Iterator[Setting]:
    """The methods on a model."""
    for name, changes in speed_settings().items():
        yield Setting(name, changed(base, changes), tokens, group)


def recorded(one: Setting, level: str) -> Setting:
    """A setting with the recorder at a level, beside itself without."""
    spec = replace(one.spec, record=level)
    return replace(one, name=f"{one.name}, recording {level}", spec=spec, beside=one.name)


def narrowed(one: Setting) -> Setting:
    """A setting in bfloat16, beside itself."""
    spec = replace(one.spec, dtype="bfloat16")
    return replace(one, name=f"{one.name}, bfloat16", spec=spec, beside=one.name)


def uncaptured(one: Setting) -> Setting:
    """A setting of whose forwards none is captured, beside itself."""
    return replace(one, name=f"{one.name}, eager", beside=one.name, eager=True)


def cpu(device: str) -> Iterator[Setting]:
    """The methods on a small network, a short and a long prompt; bfloat16; recorded; eager."""
    base = RunSpec(model=CPU_SHAPE, device=device)
    for tokens in CPU_PROMPTS:
        for one in methods(base, tokens, f"prompt {tokens}"):
            yield one
            if one.name in (PLAIN, DUAL):
                yield from (narrowed(one), recorded(one, "steps"))
            if one.name == DUAL:
                yield uncaptured(one)


def gpu(device: str) -> Iterator[Setting]:
    """Every cache on the published sizes in bfloat16, over 1,024 positions; some eager too."""
    for model, group in GPU_MODELS.items():
        base = RunSpec(model=model, device=device, dtype="bfloat16", steps=64)
        for name in caches():
            one = Setting(name, replace(base, cache=name), GPU_PROMPT, group)
            yield one
            if name in CAPTURED:
                yield uncaptured(one)


def caches() -> list[str]:
    """Every cache, alone or, where it stands on nothing, on the dual cache too."""
    stacked = [f"dual+{name}" for name, one in policies().items() if "dual" in one.stackable_on]
    return [*policies(), *stacked]


@dataclass(frozen=True)
class Entry:
    """A row of the table: its name and its settings."""

    name: str
    spec: RunSpec


def read_entries(path: Path, base: RunSpec) -> list[Entry]:
    """The entries of a JSON file, a list of {"name", fields of a spec} over `base`.

    Raises ValueError naming the entry and the field.
    """
    try:
        found = json.loads(path.read_text("utf-8"))
        assert isinstance(found, list)
        assert all(isinstance(one, dict) and isinstance(one.get("name"), str) for one in found)
    except (OSError, ValueError, AssertionError):
        raise ValueError(f'specs: {path} should be a JSON list of {{"name", fields}}') from None
    entries = []
    for one in found:
        values = {k: v for k, v in one.items() if k != "name"}
        try:
            spec = RunSpec.from_dict(base.to_dict() | values)
            derive_plan(spec)
        except ValueError as error:
            raise ValueError(f"specs: {one['name']}: {error}") from None
        entries.append(Entry(one["name"], spec))
    if not entries:
        raise ValueError(f"specs: {path} holds no entry")
    return entries
