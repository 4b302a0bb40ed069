"""Suites: the rows of the speed tables as specs, and their runs."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import groupby
from types import MappingProxyType
from typing import Any

from engine.batch.settings import with_fields
from engine.bench import report, targets
from engine.bench.models import BenchModels
from engine.bench.trial import Case, run_trials
from engine.catalog import make_policy, policies
from engine.config.answers import fitting_length
from engine.config.spec import RunSpec
from engine.core.device import free_memory
from engine.core.files import ASSETS
from engine.models.base import ModelInfo

CPU_SHAPE = "llada:layers=12,d=256,heads=8,ffn=688,vocab=2048"
CPU_PROMPTS = (64, 512)
PLAIN, DUAL = "plain decoding", "dual cache"
GPU_MODELS = {"llada": "LLaDA-8B"}
GPU_PROMPT, GPU_STEPS = 896, 32  # with an answer of 128: 1,024 positions, 4 tokens a step


@cache
def speed_settings() -> Mapping[str, Mapping[str, Any]]:
    """Name of each row of the speed tables, to the spec fields and knobs that it changes."""
    rows = json.loads((ASSETS / "results" / "speed.json").read_text("utf-8"))
    return MappingProxyType(
        {row["name"]: {key: row[key] for key in row if key != "name"} for row in rows}
    )


@dataclass(frozen=True)
class CaseSpec:
    """A `Case` without its model; the model of a shape gets a random prompt of `tokens`.

    `torch_routines` as in `BenchModels.model`.
    """

    name: str
    spec: RunSpec
    tokens: int
    group: str = ""
    baseline: str = ""
    eager: bool = False
    torch_routines: bool = False

    def case(self, models: BenchModels) -> Case:
        """The case, with its model and its prompt."""
        model = models.model(self.spec, self.tokens, self.torch_routines)
        spec, prompt = models.prompt(self.spec, self.tokens)
        return Case(self.name, model, spec, [prompt], self.group, self.baseline, self.eager)


def speed_cases(base: RunSpec, tokens: int, group: str = "") -> Iterator[CaseSpec]:
    """All `speed_settings` over a base spec."""
    for name, changes in speed_settings().items():
        yield CaseSpec(name, with_fields(base, changes), tokens, group)


def own_blocks(base: RunSpec, info: ModelInfo | None) -> RunSpec:
    """The spec in the block size of a model with block-causal attention, a token a step."""
    if info is None or not info.block_causal:
        return base
    length = fitting_length(base.gen_length, info.block_size)
    return replace(base, block_length=info.block_size, gen_length=length, steps=length)


def model_cases(base: RunSpec, info: ModelInfo | None, tokens: int) -> Iterator[CaseSpec]:
    """The rows of `speed_cases` that a model can run, and the caches for block-causal attention."""
    yield from (
        one
        for one in speed_cases(base, tokens)
        if info is None or info.attention in make_policy(one.spec).attention
    )
    if info is not None and info.block_causal:
        for name, one in policies().items():
            if "full" not in one.attention:
                yield CaseSpec(one.title, replace(base, cache=name), tokens)


def variant(one: CaseSpec, suffix: str, fields: Mapping[str, Any], **changes: Any) -> CaseSpec:
    """The case with other fields of its spec, or `changes` of its own; its baseline is `one`."""
    spec, name = replace(one.spec, **fields), f"{one.name}, {suffix}"
    return replace(one, name=name, spec=spec, baseline=one.name, **changes)


def with_recorder(one: CaseSpec, level: str) -> CaseSpec:
    """The case with a recorder at a level; its baseline is `one`."""
    return variant(one, f"recording {level}", {"record": level})


def cpu_suite(device: str) -> Iterator[CaseSpec]:
    """A small network with a short and a long prompt.

    Plain decoding and dual cache also run in bfloat16, recorded, and with torch's routines; dual
    cache also with eager forwards.
    """
    base = RunSpec(model=CPU_SHAPE, device=device)
    for tokens in CPU_PROMPTS:
        for one in speed_cases(base, tokens, f"prompt {tokens}"):
            yield one
            if one.name in (PLAIN, DUAL):
                yield from (
                    variant(one, "bfloat16", {"dtype": "bfloat16"}),
                    with_recorder(one, "layers"),
                    variant(one, "torch's routines", {}, torch_routines=True),
                )
            if one.name == DUAL:
                yield variant(one, "eager", {}, eager=True)


def gpu_suite(device: str) -> Iterator[CaseSpec]:
    """Every cache at LLaDA-8B's sizes, in bfloat16 over 1,024 positions; some also eager."""
    for model, group in GPU_MODELS.items():
        base = RunSpec(model=model, device=device, dtype="bfloat16", steps=GPU_STEPS)
        for name in full_caches():
            one = CaseSpec(name, replace(base, cache=name), GPU_PROMPT, group)
            yield one
            if name in targets.COMPARED:
                yield variant(one, "eager", {}, eager=True)


def full_caches() -> list[str]:
    """The policies for full attention."""
    return [name for name, one in policies().items() if "full" in one.attention]


def run_cases(
    cases: Sequence[CaseSpec], rounds: int, with_targets: bool = False
) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """The rows of `report`, and those of `targets` if wanted; each model has its own rounds."""
    rows: list[dict[str, Any]] = []
    goals: list[dict[str, Any]] = []
    for _, group in groupby(cases, key=lambda one: one.spec.model):
        found, measured = _run_rounds(list(group), rounds, with_targets)
        rows += found
        goals += targets.check(found, measured) if with_targets else []
        free_memory()
    return rows, goals


def _run_rounds(
    cases: Sequence[CaseSpec], rounds: int, with_targets: bool
) -> tuple[list[dict[str, Any]], dict[str, list[float]]]:
    models = BenchModels()
    loaded = [one.case(models) for one in cases]
    adapter = loaded[0].model.adapter
    rates = targets.rates(adapter.device, adapter.dtype) if with_targets else {}
    trials, measured = run_trials(loaded, rounds, rates)
    return report.rows(trials), measured
