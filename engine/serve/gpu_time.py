"""Pace: seconds that a run takes on a GPU, computed from published figures, not measured."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import torch

from engine.config.spec import RunSpec
from engine.generate.capturers import WARM_UP_STEPS
from engine.models.base import ModelInfo
from engine.models.loading.memory_estimate import parameters, weights_bytes
from engine.serve.memory_budget import dtype_of

REACHED = 0.4  # share of either published figure that an eager engine is taken to reach
LAUNCH = 3e-4  # seconds that the host takes for a layer, where the GPU is faster than that
RECORDING = 1.5  # a step whose drifts are recorded, over one without
SHIPPED, STARTED = 4e9, 3.0  # bytes a second to a fresh worker's GPU; seconds until it is there


@dataclass(frozen=True)
class GpuSpec:
    """A GPU by its maker's figures: bytes, bytes a second, FLOPs a second (16 bits, dense)."""

    title: str
    memory: int
    bandwidth: float
    flops: float


GPUS: Mapping[str, GpuSpec] = MappingProxyType({
    "l4x1": GpuSpec("L4", 24_000_000_000, 300e9, 121e12),
    "a10g-large": GpuSpec("A10G", 24_000_000_000, 600e9, 70e12),
    "l40sx1": GpuSpec("L40S", 48_000_000_000, 864e9, 362e12),
    "a100-large": GpuSpec("A100", 80_000_000_000, 2039e9, 312e12),
    "zero-a10g": GpuSpec("ZeroGPU, half an RTX PRO 6000", 48_000_000_000, 896e9, 250e12),
})  # fmt: skip


def forward_seconds(card: GpuSpec, info: ModelInfo, dtype: torch.dtype, rows: int) -> float:
    """Seconds of one forward over so many rows, all of them through every layer and the head."""
    tables = info.vocab_size * info.d_model
    read = weights_bytes(info, dtype) - (0 if info.tied else tables * dtype.itemsize)
    spent = 2 * (parameters(info) - tables) * rows + 4 * rows**2 * info.d_model * info.layers
    busy = max(read / card.bandwidth, spent / card.flops) / REACHED
    return max(busy, LAUNCH * info.layers)


def run_seconds(card: GpuSpec, spec: RunSpec, info: ModelInfo, plan: Mapping[str, Any]) -> float:
    """Most seconds of a run with this plan (Session.plan), no row spared by its cache."""
    rows = (plan["prompt_tokens"] or 0) + spec.gen_length
    one = forward_seconds(card, info, dtype_of(spec), rows) * (2 if spec.cfg_scale else 1)
    forwards = plan["max_forwards"] + WARM_UP_STEPS + plan["probe_forwards"]
    return one * forwards * (RECORDING if spec.record in ("layers", "probe") else 1.0)


def start_seconds(info: ModelInfo, dtype: torch.dtype) -> float:
    """Seconds until a fresh worker of a shared GPU holds a model."""
    return STARTED + weights_bytes(info, dtype) / SHIPPED
