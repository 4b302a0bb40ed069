"""Seconds that a run takes on a GPU, computed from published figures, not measured."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import torch

from engine.config.spec import RunSpec
from engine.generate.capture.capturers import WARM_UP_STEPS
from engine.models.base import ModelInfo
from engine.models.loading.memory_estimate import active_parameters, dtype_of, weights_bytes
from engine.record.logit_lens import rows_at_a_time

EFFICIENCY = 0.4  # assumed share of the published bandwidth and FLOPs that eager forwards reach
LAUNCH_SECONDS = 3e-4  # of the host for each layer, the lower bound of a layer's time
RECORDING_FACTOR = 1.5  # time of a step that records drifts, relative to one that does not
UPLOAD_BANDWIDTH, WORKER_SECONDS = 4e9, 3.0  # bytes a second to a new worker's GPU; its start
CALIBRATION_ROWS = 192  # of a problem that drifts are measured on, with its answer, at most
RESERVE = 1.15  # of a run on a shared GPU, whose worker is ended with the requested seconds


@dataclass(frozen=True)
class GpuSpec:
    """Published figures of a GPU: bytes, bytes a second, FLOPs a second by number format.

    `half` are those of 16 bits (dense); `single` and `double` those without tensor cores, which
    torch uses for float32 and float64 unless it is told otherwise. An A10G has other rates than an
    A10. The RTX PRO 6000 is the Server Edition, whose memory is slower than a workstation's.
    """

    title: str
    memory: int
    bandwidth: float
    half: float
    single: float
    double: float

    def flops(self, dtype: torch.dtype) -> float:
        """FLOPs a second in a number format."""
        return {torch.float32: self.single, torch.float64: self.double}.get(dtype, self.half)


GPUS: Mapping[str, GpuSpec] = MappingProxyType({
    "l4x1": GpuSpec("L4", 24_000_000_000, 300e9, 121e12, 30.3e12, 0.47e12),
    "a10g-large": GpuSpec("A10G", 24_000_000_000, 600e9, 70e12, 35e12, 0.55e12),
    "l40sx1": GpuSpec("L40S", 48_000_000_000, 864e9, 362e12, 91.6e12, 1.4e12),
    "a100-large": GpuSpec("A100", 80_000_000_000, 2039e9, 312e12, 19.5e12, 9.7e12),
    "zero-a10g": GpuSpec(
        "ZeroGPU, half an RTX PRO 6000", 48_000_000_000, 798e9, 250e12, 62.5e12, 0.98e12
    ),
})  # fmt: skip


def forward_seconds(gpu: GpuSpec, info: ModelInfo, dtype: torch.dtype, rows: int) -> float:
    """Seconds of a forward that takes `rows` rows through every layer and the head."""
    tables = info.vocab_size * info.d_model
    read = weights_bytes(info, dtype) - (0 if info.tied else tables * dtype.itemsize)
    products = active_parameters(info)
    spent = 2 * products * rows + 4 * rows**2 * info.d_q * info.layers
    busy = max(read / gpu.bandwidth, spent / gpu.flops(dtype)) / EFFICIENCY
    return max(busy, LAUNCH_SECONDS * info.layers)


def run_seconds(
    gpu: GpuSpec,
    spec: RunSpec,
    info: ModelInfo,
    plan: Mapping[str, Any],
    warm_up: int = WARM_UP_STEPS,
) -> float:
    """The most seconds of a run with this plan (Session.plan), without savings by its cache.

    Those of a guider come on top (`guider_seconds`).

    A probed step adds an exact forward and the logit lens of both passes. `warm_up` are the untimed
    steps before the run, more than by default if its forwards are captured. Forwards that measure
    drifts before it are of other, short problems.
    """
    rows = (plan["prompt_tokens"] or 0) + spec.gen_length + plan["suffix_tokens"]
    one = forward_seconds(gpu, info, dtype_of(spec), rows) * (2 if spec.cfg_scale else 1)
    untimed = min(warm_up, plan["max_forwards"])
    forwards = plan["max_forwards"] + untimed + plan["probe_forwards"]
    found = one * forwards * (RECORDING_FACTOR if spec.record in ("layers", "probe") else 1.0)
    calibrating = forward_seconds(gpu, info, dtype_of(spec), CALIBRATION_ROWS)
    found += plan["calibration_forwards"] * calibrating
    return found + plan["probe_forwards"] * lens_seconds(gpu, info, dtype_of(spec), spec.gen_length)


def lens_seconds(gpu: GpuSpec, info: ModelInfo, dtype: torch.dtype, rows: int) -> float:
    """Seconds of the logit lens of `rows` positions after every layer of two passes."""
    table, heads = info.vocab_size * info.d_model, 2 * info.layers
    parts = -(-rows // rows_at_a_time(info.vocab_size))
    read = heads * parts * table * dtype.itemsize
    spent = heads * 2 * rows * table
    return max(read / gpu.bandwidth, spent / gpu.flops(dtype)) / EFFICIENCY


def guider_seconds(
    gpu: GpuSpec, spec: RunSpec, info: ModelInfo, plan: Mapping[str, Any], draft: int
) -> float:
    """The most seconds that a guider of these sizes adds to a run with this plan.

    It is loaded, reads the prompt, and then reads drafts of up to `draft` tokens: one in each step,
    and another one after each that is accepted in full. A draft lies in a block.
    """
    dtype = dtype_of(spec)
    prompt = forward_seconds(gpu, info, dtype, plan["prompt_tokens"] or 1)
    reads = plan["max_forwards"] + spec.gen_length // draft
    one = forward_seconds(gpu, info, dtype, spec.block_length)
    return weights_bytes(info, dtype) / UPLOAD_BANDWIDTH + prompt + reads * one


def start_seconds(spec: RunSpec, info: ModelInfo) -> float:
    """Seconds until a new worker of a shared GPU holds a model."""
    return WORKER_SECONDS + weights_bytes(info, dtype_of(spec)) / UPLOAD_BANDWIDTH
