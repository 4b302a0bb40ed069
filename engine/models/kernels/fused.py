"""Small operations as one GPU kernel each, where torch launches up to seven.

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
import torch.nn.functional as F
from torch import Tensor

from engine.core.device import free_memory, synchronized_time
from engine.core.rows import ALL, Rows, put
from engine.models.base import ModelAdapter, has_hooks
from engine.models.kernels.choice import TORCH, Fused, fastest
from engine.models.kernels.measure import Clock, race
from engine.models.ops import Rotary, drift, rms_norm

HALF = (torch.float16, torch.bfloat16)
ROWS = (32, 512)  # of the operands on which a kernel is tried
POSITIONS = 1024  # among which rows are written
CALLS = 10  # that are timed together
EQUAL = 0.99  # share of numbers that must be equal; the others may differ in the last places
DRIFT = 1e-4  # how far drifts may differ, as a share: their sums have another order
log = logging.getLogger("driftscope")
Operation = Callable[..., Tensor]


def faster_kernels(adapter: ModelAdapter) -> Fused:
    """The kernels that agree with torch's operations on the GPU of a model and are faster there.

    Empty in float32, without Triton, and for weights on several devices. A kernel that fails or
    differs is logged and left out. Of a model with experts the gate is left out: each of them gets
    another number of rows.
    """
    if adapter.dtype not in HALF or find_spec("triton") is None or has_hooks(adapter):
        return {}
    try:
        kernels: Fused = import_module("engine.models.kernels.triton_kernels").KERNELS
    except Exception as error:  # a version of Triton that does not fit torch
        log.warning("fused kernels: Triton cannot be used (%s)", error)
        return {}
    if adapter.info.experts is not None:
        kernels = {name: kernel for name, kernel in kernels.items() if name != "gate"}
    found = checked(adapter, kernels)
    free_memory()
    log.info("fused kernels: %s", ", ".join(found) or "none")
    return found


def checked(adapter: ModelAdapter, kernels: Fused, clock: Clock = time.perf_counter) -> Fused:
    """Those of `kernels` that agree with torch's operations and are faster, see `race`."""
    found = {}
    for name, kernel in kernels.items():
        try:
            trials = _trials(adapter, name)
            if all(_agrees_and_is_faster(name, kernel, *trial, clock) for trial in trials):
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
        elif name == "drift":
            old = drawn(1, rows, info.d_kv)
            yield drift, (old + drawn(1, rows, info.d_kv) / 16, old)
        elif name == "write":
            places = torch.randperm(POSITIONS, device=device, generator=draw)[:rows].sort().values
            stored = drawn(1, info.n_kv_heads, POSITIONS, info.head_dim)
            new = drawn(1, rows, info.n_kv_heads, info.head_dim).transpose(1, 2)
            yield _put, (stored, places[None], new, 2)
        else:
            rotary = Rotary(rows, info.rotary_dim, info.rope_theta, dtype, device)
            heads = info.n_heads + info.n_kv_heads
            projected = drawn(1, rows, heads + info.n_kv_heads, info.head_dim)
            yield rotary, (projected[:, :, :heads, : info.rotary_dim], *rotary.angles(ALL))


def _gate(x: Tensor) -> Tensor:
    """`linear.gated`, which overwrites its operand, with one that stays."""
    gate, up = x.chunk(2, -1)
    return F.silu(gate).mul_(up)


def _put(x: Tensor, rows: Rows, values: Tensor, dim: int) -> Tensor:
    """`rows.put`, which returns nothing, with its result."""
    put(x, rows, values, dim)
    return x


@torch.inference_mode()
def _agrees_and_is_faster(
    name: str, kernel: Operation, operation: Operation, operands: tuple[Any, ...], clock: Clock
) -> bool:
    before = operands[0].clone()
    found = kernel(*operands).clone()
    operands[0].copy_(before)  # a kernel that writes in place has changed it
    if not alike(found, operation(*operands)):
        log.warning("fused kernels: %s differs from torch's operation on this GPU", name)
        return False
    runs = {TORCH: _repeated(operation, operands), name: _repeated(kernel, operands)}
    return fastest(race(runs, clock)) == name


def _repeated(operation: Operation, operands: tuple[Any, ...]) -> Callable[[], None]:
    """CALLS calls; on a GPU replayed, as in a captured forward, where launches take no time."""
    device = operands[0].device
    replay: Callable[[], None] = partial(_call, operation, operands)
    if device.type == "cuda":
        graph = torch.cuda.CUDAGraph()
        mode = "thread_local"  # other threads may use the GPU
        with torch.cuda.device(device), torch.cuda.graph(graph, capture_error_mode=mode):
            _call(operation, operands)
        replay = graph.replay

    def run() -> None:
        replay()
        synchronized_time(device)

    return run


def _call(operation: Operation, operands: tuple[Any, ...]) -> None:
    for _ in range(CALLS):
        operation(*operands)


def alike(found: Tensor, expected: Tensor) -> bool:
    """Whether nearly all numbers are equal, and the others differ in the last places alone.

    Numbers in float32 are drifts, whose sums may have another order.
    """
    if found.shape != expected.shape or found.dtype != expected.dtype:
        return False
    if expected.dtype == torch.float32:
        return torch.allclose(found, expected, rtol=DRIFT, atol=DRIFT**2)
    eps = torch.finfo(expected.dtype).eps
    near = torch.allclose(found, expected, rtol=2 * eps, atol=eps / 8)
    return near and float((found == expected).float().mean()) >= EQUAL
