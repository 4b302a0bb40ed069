"""Rates of this machine's CPU, measured in a few seconds.

They are those of whole steps on models with random weights, of plain decoding and, for steps of few
rows, with a dual cache: the rate of products is the FLOPs of a layer over its time without launches
and attention, so that norms, rotations, the cache and other operations are in it.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from functools import cache, partial
from statistics import median

import torch
import torch.nn.functional as F

from engine.catalog import make_policy, make_unmasker
from engine.config.spec import RunSpec
from engine.core.device import device_name
from engine.estimate.devices import FEW_ROWS, MANY_ROWS, THIS_MACHINE, DeviceRates
from engine.generate.capture.capturers import make_capturer
from engine.generate.job import Job
from engine.generate.loop import Denoiser, denoise
from engine.models.base import ModelInfo
from engine.models.kernels.machine import choose_kernels
from engine.models.loading.memory_estimate import free_bytes
from engine.models.loading.random_weights import MINIMUM, random_adapter, random_model_config

CPU = torch.device("cpu")
MAX_WIDTH, STEPS = 1024, 6
CACHED_STEPS = 16  # of a run with a cache, the first of which uses none
READ_BYTES = 1 << 26
ROUNDS = 5
ATTEMPTS = 3
NARROW = (32, 32, 1)  # width, inner width and heads of a model whose products are negligible
NARROW_ROWS, NARROW_STEPS = 32, 24


def measure_this_machine(info: ModelInfo, dtype: torch.dtype) -> DeviceRates:
    """The rates of this machine for products as wide as those of a model, at most MAX_WIDTH.

    Equal sizes are measured once for each number of threads; the memory is what is free now.
    """
    wide, inner = min(info.d_model, MAX_WIDTH), min(info.ffn, 2 * MAX_WIDTH)
    found = _measure(wide, inner, min(info.head_dim, wide), dtype, torch.get_num_threads())
    return replace(found, memory=free_bytes()["cpu"])


@cache
def _measure(wide: int, inner: int, head: int, dtype: torch.dtype, threads: int) -> DeviceRates:
    """The rates for products of rows with [inner, wide], and heads of `head`; without memory."""
    with torch.inference_mode():
        attention, bandwidth = _attention_rate(wide, head, dtype), _bandwidth()
    layer, step = _overheads()
    heads = max(1, wide // head)
    sizes = heads * head, inner, heads
    flops, few = (
        _product_rate(sizes, dtype, rows, layer, attention) for rows in (MANY_ROWS, FEW_ROWS)
    )
    name = f"{device_name(CPU)}, {threads} thread(s)"
    words = (
        f"measured on this machine: {flops / 1e9:.0f} GFLOP/s in layers {wide} x {inner} of "
        f"{MANY_ROWS} rows and {few / 1e9:.0f} of {FEW_ROWS} with a cache, "
        f"{attention / 1e9:.0f} in attention, {bandwidth / 1e9:.1f} GB/s, "
        f"{layer * 1e6:.0f} us a layer, {step * 1e3:.2f} ms a step"
    )
    return DeviceRates(
        THIS_MACHINE, f"this machine ({name})", flops, attention, bandwidth, layer, step,
        0, words, measured=True, few_flops=few,
    )  # fmt: skip


def _product_rate(
    sizes: tuple[int, int, int], dtype: torch.dtype, rows: int, layer: float, attention: float
) -> float:
    """FLOPs of products a second in a layer that computes so many of MANY_ROWS rows.

    `layer` are the seconds of a layer without products, `attention` the rate of scores.
    """
    wide, inner, _ = sizes
    work = rows * (8 * wide**2 + 6 * wide * inner)
    scores = 4 * rows * MANY_ROWS * wide / attention
    whole = _layer_seconds(sizes, dtype, rows)
    return work / max(whole - layer - scores, whole / 4)


def _attention_rate(wide: int, head: int, dtype: torch.dtype) -> float:
    heads = max(1, wide // head)
    q, k, v = (torch.randn(1, heads, MANY_ROWS, head).to(dtype) for _ in range(3))
    seconds = _fastest(partial(F.scaled_dot_product_attention, q, k, v))
    return 4 * MANY_ROWS * MANY_ROWS * heads * head / seconds


def _bandwidth() -> float:
    return READ_BYTES / _fastest(torch.ones(READ_BYTES // 4).sum)


def _overheads() -> tuple[float, float]:
    """Seconds of a layer and of a step whose products are negligible."""
    few, many = (
        _step_seconds(_plain(NARROW_STEPS), layers, NARROW, torch.float32, NARROW_ROWS)
        for layers in (2, 10)
    )
    layer = max(many - few, 0.0) / 8
    return layer, max(few - 2 * layer, 0.0)


def _layer_seconds(sizes: tuple[int, int, int], dtype: torch.dtype, rows: int) -> float:
    """Seconds of a layer that computes all of MANY_ROWS rows, or fewer of them with a dual cache.

    On a busy machine a step of three layers may seem no slower than one of a single layer. It is
    then measured again, and after ATTEMPTS all its time is counted as its layers'.
    """
    spec = _plain(STEPS)
    if rows < MANY_ROWS:
        spec = RunSpec(gen_length=rows, block_length=rows, steps=CACHED_STEPS, cache="dual")
    for _ in range(ATTEMPTS):
        one, three = (_step_seconds(spec, layers, sizes, dtype, MANY_ROWS) for layers in (1, 3))
        if three > one:
            return (three - one) / 2
    return three / 3


def _plain(steps: int) -> RunSpec:
    """Plain decoding of so many tokens."""
    return RunSpec(gen_length=steps, block_length=steps, steps=steps)


def _step_seconds(
    spec: RunSpec, layers: int, sizes: tuple[int, int, int], dtype: torch.dtype, rows: int
) -> float:
    """The median seconds of a step of a random model, with a cache of one that uses it.

    `sizes`: width, inner width, heads; `rows` are those of prompt and answer.
    """
    wide, inner, heads = sizes
    name = f"llada:layers={layers},d={wide},heads={heads},ffn={inner},vocab={MINIMUM['vocab']}"
    adapter = random_adapter(random_model_config(name), dtype, CPU)
    choose_kernels(adapter)
    canvas = torch.full((1, rows), adapter.info.mask_id)
    prompt = rows - spec.gen_length
    canvas[:, :prompt] = 3
    job = Job(
        adapter, spec, canvas, prompt, lambda: make_policy(spec), make_unmasker(spec),
        capturer=make_capturer(adapter, False),
    )  # fmt: skip
    state = Denoiser(job)
    list(denoise(state))
    state.rewind()
    kind = "full" if spec.cache == "none" else "partial"
    return median(event.step_ms for event in denoise(state) if event.kind == kind) / 1e3


def _fastest(call: Callable[[], object]) -> float:
    """The seconds of the fastest of ROUNDS calls, after one that is not timed."""
    call()
    times = []
    for _ in range(ROUNDS):
        started = time.perf_counter()
        call()
        times.append(time.perf_counter() - started)
    return max(min(times), time.get_clock_info("perf_counter").resolution)
