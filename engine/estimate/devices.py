"""Rates of devices: published figures of GPUs, and the time that a step takes at given rates."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType

import numpy as np
import torch

from engine.core.events import PARTS
from engine.core.tables import percentage
from engine.estimate.work import WorkCounter

THIS_MACHINE = "this"
FEW_ROWS, MANY_ROWS = 32, 256  # of the steps whose rates are measured
EFFICIENCY = 0.7
SPARSE = "NVIDIA {} data sheet (with sparsity: twice)"
ASSUMED = (
    f"Assumed of a GPU: {percentage(EFFICIENCY, 0)} of the published dense FLOP/s are reached, as "
    "plain decoding of LLaDA-8B-Base reaches of an RTX 4090 in Table 1 of dLLM-Cache (16.12 "
    "TFLOPs at 7.32 tokens/s: 118 of 165 TFLOP/s). The published bandwidth is taken in full, and "
    "launches of kernels take no time: a step with few rows takes longer than predicted. On an "
    "H200, steps of LLaDA-8B's sizes took this engine 1.2 times (plain decoding) to 1.7 times "
    "(SPA-Cache) as long."
)
ROOFLINE = (
    "A step takes the longer of two times, its FLOPs at the rate of products and its bytes at the "
    "memory's bandwidth, and then the overhead of its layers and of the step. Weights are read "
    "once in each product, keys and values once in each attention, inputs and outputs of products "
    "once. Elementwise operations are in the rates of a measured device, and not counted "
    "otherwise. One sequence, one device."
)


@dataclass(frozen=True)
class DeviceRates:
    """What a device does in a second, and the overhead of launching work on it.

    `flops` of products and `attention_flops` of scores and sums, a second. A step of few rows has
    a lower rate: `few_flops` at FEW_ROWS, in between on a logarithmic scale, `flops` from MANY_ROWS
    on; 0: the same at any number. `bandwidth` in bytes a second; `layer_seconds` and `step_seconds`
    are added for each layer and each step. `memory` in bytes, 0 if it is not known. `source` says
    where the rates come from; `measured`: on this machine. `single_tera`: published TFLOP/s of a
    GPU in float32.
    """

    name: str
    title: str
    flops: float
    attention_flops: float
    bandwidth: float
    layer_seconds: float
    step_seconds: float
    memory: int
    source: str
    measured: bool = False
    few_flops: float = 0.0
    single_tera: float = 0.0

    def at(self, dtype: torch.dtype) -> DeviceRates:
        """The rates of a published GPU in a number format; ValueError naming `dtype` for float64.

        torch multiplies float32 without tensor cores unless it is told otherwise.
        """
        if self.measured or dtype in (torch.bfloat16, torch.float16):
            return self
        if dtype != torch.float32:
            raise ValueError(f"dtype: the rate of {self.title} in {dtype} is not known here")
        flops = self.single_tera * 1e12 * EFFICIENCY
        source = f"published: {self.single_tera:g} TFLOP/s (float32), {self.bandwidth / 1e9:g} GB/s"
        return replace(self, flops=flops, attention_flops=flops, source=source)

    def product_rate(self, rows: float) -> float:
        """FLOPs of products a second in a step whose layers compute so many rows on average."""
        if not self.few_flops:
            return self.flops
        span = math.log(MANY_ROWS / FEW_ROWS)
        share = min(max(math.log(max(rows, 1.0) / FEW_ROWS) / span, 0.0), 1.0)
        return self.few_flops ** (1 - share) * self.flops**share


def _gpu(
    name: str, title: str, tera: float, single: float, giga: float, memory: int, source: str
) -> DeviceRates:
    """A GPU of `tera` published TFLOP/s (bf16, dense), times EFFICIENCY, and `giga` GB/s.

    `single` are its published TFLOP/s in float32, without tensor cores.
    """
    flops = tera * 1e12 * EFFICIENCY
    words = f"published: {tera:g} TFLOP/s (bf16, dense), {giga:g} GB/s; {source}"
    return DeviceRates(
        name, title, flops, flops, giga * 1e9, 0.0, 0.0, memory * 10**9, words, single_tera=single
    )


GPUS: Mapping[str, DeviceRates] = MappingProxyType({
    gpu.name: gpu
    for gpu in (
        _gpu("h200", "H200 SXM", 989.4, 67, 4800, 141, SPARSE.format("H200")),
        _gpu("h100", "H100 SXM", 989.4, 67, 3350, 80, SPARSE.format("H100")),
        _gpu("a100", "A100 SXM 80 GB", 312, 19.5, 2039, 80, "NVIDIA A100 data sheet"),
        _gpu("rtx4090", "RTX 4090", 165.2, 82.6, 1008, 24, "NVIDIA Ada architecture white paper"),
        _gpu("rtx3090", "RTX 3090", 71, 35.6, 936, 24, "NVIDIA GA102 architecture white paper"),
    )
})  # fmt: skip


def step_seconds(work: WorkCounter, forwards: int, device: DeviceRates) -> tuple[float, str]:
    """Seconds of a step of so many forwards, and what bounds it: `compute` or `memory`."""
    parts = work.parts()
    attention = float(parts[PARTS.index("attention")])
    products = device.product_rate(float(work.rows.mean()) / forwards)
    compute = (float(parts.sum()) - attention) / products + attention / device.attention_flops
    memory = total_bytes(work) / device.bandwidth
    overhead = device.step_seconds + forwards * work.info.layers * device.layer_seconds
    return max(compute, memory) + overhead, "compute" if compute >= memory else "memory"


def total_bytes(work: WorkCounter) -> int:
    """Bytes that a step reads and writes."""
    return int(np.sum([work.weight_bytes, work.key_bytes, work.activation_bytes]))
