"""Norm, rotation and gate as one GPU kernel each, where torch launches two to seven.

A step that recomputes few rows of a large model spends as much time on such small operations as on
reading the weights. The kernels are for half precision; runs in float32, which are compared with
others number by number, use torch's operations.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import torch
from torch import Tensor

from engine.core.device import synchronized_time
from engine.core.rows import ALL
from engine.models.base import ModelAdapter
from engine.models.kernels.choice import TORCH, Fused, fastest
from engine.models.kernels.linear import gated
from engine.models.kernels.measure import Clock, race
from engine.models.ops import Rotary, rms_norm

HALF = (torch.float16, torch.bfloat16)
ROWS = (32, 512)  # of the operands on which a kernel is tried
CALLS = 10  # that are timed together
EQUAL = 0.99  # share of numbers that must be equal; the others may differ in the last place
log = logging.getLogger("driftscope")
Operation = Callable[..., Tensor]


def faster_kernels(adapter: ModelAdapter) -> Fused:
    """The kernels that agree with torch's operations on the GPU of a model and are faster there.

    Empty in float32, and without Triton. A kernel that fails or differs is logged and left out.
    """
    if adapter.dtype not in HALF or find_spec("triton") is None:
        return {}
    try:
        kernels: Fused = import_module("engine.models.kernels.triton_kernels").KERNELS
    except (ImportError, RuntimeError) as error:
        log.warning("fused kernels: Triton cannot be used (%s)", error)
        return {}
    return checked(adapter, kernels)


def checked(adapter: ModelAdapter, kernels: Fused, clock: Clock = time.perf_counter) -> Fused:
    """Those of `kernels` that agree with torch's operations and are faster, see `race`."""
    found = {}
    for name, kernel in kernels.items():
        try:
            if all(_pays(name, kernel, *trial, clock) for trial in _trials(adapter, name)):
                found[name] = kernel
        except Exception as error:  # a compiler, driver or GPU that Triton does not support
            log.warning("fused kernels: %s cannot be used (%s)", name, error)
    return found


def _trials(adapter: ModelAdapter, name: str) -> Iterator[tuple[Operation, tuple[Any, ...]]]:
    """Torch's operation and its operands, of the sizes of a model, for each of ROWS."""
    info, device, dtype = adapter.info, adapter.device, adapter.dtype
    draw = torch.Generator(device).manual_seed(1)

    def drawn(*shape: int) -> Tensor:
        return torch.randn(shape, dtype=dtype, device=device, generator=draw)

    for rows in ROWS:
        if name == "norm":
            yield rms_norm, (drawn(1, rows, info.d_model), drawn(info.d_model), info.norm_eps)
        elif name == "gate":
            yield _gate, (drawn(1, rows, 2 * info.ffn),)
        else:
            rotary = Rotary(rows, info.rotary_dim, info.rope_theta, dtype, device)
            heads = info.n_heads + info.n_kv_heads
            projected = drawn(1, rows, heads + info.n_kv_heads, info.head_dim)
            yield rotary, (projected[:, :, :heads, : info.rotary_dim], *rotary.angles(ALL))


def _gate(x: Tensor) -> Tensor:
    return gated(x.clone())


@torch.inference_mode()
def _pays(
    name: str, kernel: Operation, operation: Operation, operands: tuple[Any, ...], clock: Clock
) -> bool:
    if not alike(kernel(*operands), operation(*operands)):
        log.warning("fused kernels: %s differs from torch's operation here", name)
        return False
    runs = {TORCH: partial(_repeat, operation, operands), name: partial(_repeat, kernel, operands)}
    return fastest(race(runs, clock)) == name


def _repeat(operation: Operation, operands: tuple[Any, ...]) -> None:
    for _ in range(CALLS):
        operation(*operands)
    synchronized_time(operands[0].device)


def alike(found: Tensor, expected: Tensor) -> bool:
    """Whether nearly all numbers are equal, and none differs by more than the last place."""
    if found.shape != expected.shape or found.dtype != expected.dtype:
        return False
    eps = torch.finfo(expected.dtype).eps
    near = torch.allclose(found, expected, rtol=2 * eps, atol=eps / 8)
    return near and float((found == expected).float().mean()) >= EQUAL
