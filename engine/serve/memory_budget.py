"""Room: what a spec's model and its run take of a device, and what is free there."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import torch

from engine.cache.base import RunInfo
from engine.catalog import make_policy
from engine.config.spec import RunSpec
from engine.models.base import ModelAdapter, ModelInfo
from engine.models.loading.memory_estimate import (
    check_fits,
    gigabytes,
    main_of,
    run_bytes,
    weights_bytes,
)

BFLOAT16_SINCE = 8  # compute capability
FIGURES = ("weights_bytes", "memory_bytes", "free_bytes")  # of a Room, as a plan has them


@dataclass(frozen=True)
class MemoryBudget:
    """Bytes: of the weights, of the run beside them, and free on the device before both."""

    weights: int
    run: int
    free: int

    def to_dict(self) -> dict[str, int | None]:
        """As a plan has it."""
        values = (self.weights, self.weights + self.run, self.free)
        return dict(zip(FIGURES, values, strict=True))


def dtype_of(spec: RunSpec) -> torch.dtype:
    """The number format of a spec."""
    dtype = getattr(torch, spec.dtype)
    assert isinstance(dtype, torch.dtype)
    return dtype


def measure(
    spec: RunSpec, info: ModelInfo, tokens: int, free: Mapping[str, int], beside: int = 0
) -> MemoryBudget:
    """What a spec takes with a prompt of so many tokens; `free` are bytes by device.

    `beside` are bytes that a guider takes.

    Raises MemoryShort naming `model` where it does not fit, ValueError naming `device` where that
    is not there.
    """
    dtype, run = dtype_of(spec), bytes_of_run(spec, info, tokens) + beside
    main = main_of(spec.device, free)
    check_fits(info, dtype, spec.device, run, free)
    return MemoryBudget(weights_bytes(info, dtype), run, free[main])


def bytes_of_run(spec: RunSpec, info: ModelInfo, tokens: int) -> int:
    """Bytes of a spec's activations, caches and logits; guidance keeps two of each."""
    run = RunInfo(info, 1, tokens, spec.gen_length, spec.block_length, guided=spec.cfg_scale > 0)
    sites = make_policy(spec).sites(run)
    batch = 2 if spec.cfg_scale > 0 else 1
    return run_bytes(info, dtype_of(spec), run.length, batch, sites, spec.gen_length)


def held_bytes(adapters: Iterable[ModelAdapter]) -> dict[str, int]:
    """Bytes of weights that adapters hold, by device; what lies elsewhere than in one is left."""
    out: dict[str, int] = {}
    for adapter in adapters:
        for tensor in adapter.parameters():
            name = str(tensor.device)
            out[name] = out.get(name, 0) + tensor.nbytes
    return out


def present_devices() -> list[str]:
    """What a spec's `device` may be on this machine."""
    several = [f"cuda:{i}" for i in range(torch.cuda.device_count())]
    return ["cpu", *(["cuda"] if several else []), *(several if len(several) > 1 else []), "auto"]


def device_titles() -> dict[str, str]:
    """What the GPUs that are there are called, their memory, and whether bfloat16 is their own."""
    titles = {}
    for i in range(torch.cuda.device_count()):
        found = torch.cuda.get_device_properties(i)
        own = "" if found.major >= BFLOAT16_SINCE else ", bfloat16 emulated: choose float16"
        titles[f"cuda:{i}"] = f"{found.name}, {gigabytes(found.total_memory)}{own}"
    return titles | ({"cuda": titles["cuda:0"]} if titles else {})
