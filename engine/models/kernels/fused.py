"""Triton kernels that replace several of torch's operations in a layer.

A step that recomputes few rows of a large model spends a third of its time on small operations, for
which torch launches up to nine kernels each. Here each is one kernel; attention of few rows is two.
The kernels are for half precision. Runs in float32, which are compared with others number by
number, use torch's operations.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import torch
from torch import Tensor

from engine.core.device import capture_stream, free_memory, synchronized_time
from engine.models.base import ModelAdapter, has_hooks
from engine.models.kernels.choice import TORCH, Fused, fastest
from engine.models.kernels.fused_trials import Operation, trials
from engine.models.kernels.measure import Clock, median_times

HALF = (torch.float16, torch.bfloat16)
CALLS = 10  # that are timed together
EQUAL = 0.99  # share of numbers that must be equal; the others may differ in the last places
EQUAL_SUMS = {"attention": 0.5, "swiglu": 0.5}  # the same where sums have another order
DRIFT = 1e-4  # how far drifts may differ, as a share: their sums have another order
log = logging.getLogger("driftscope")


def faster_kernels(adapter: ModelAdapter) -> Fused:
    """The kernels that agree with torch's operations on the GPU of a model and are faster there.

    Empty in float32, without Triton, and for weights on several devices. A kernel that fails or
    differs is logged and left out. Of a model with experts the gate and its product are left out:
    each expert gets another number of rows.
    """
    if adapter.dtype not in HALF or find_spec("triton") is None or has_hooks(adapter):
        return {}
    try:
        kernels: Fused = import_module("engine.models.kernels.triton_kernels").KERNELS
    except Exception as error:  # a version of Triton that does not fit torch
        log.warning("fused kernels: Triton cannot be used (%s)", error)
        return {}
    if adapter.info.experts is not None:
        kernels = {n: kernel for n, kernel in kernels.items() if n not in ("gate", "swiglu")}
    found = checked(adapter, kernels)
    free_memory()
    log.info("fused kernels: %s", ", ".join(found) or "none")
    return found


def checked(adapter: ModelAdapter, kernels: Fused, clock: Clock = time.perf_counter) -> Fused:
    """Those of `kernels` that agree with torch's operations and are faster, see `median_times`."""
    found = {}
    for name, kernel in kernels.items():
        try:
            tried = trials(adapter, name)
            if all(_agrees_and_is_faster(name, kernel, *trial, clock) for trial in tried):
                found[name] = kernel
        except Exception as error:  # a compiler, driver or GPU that Triton does not support
            log.warning("fused kernels: %s cannot be used (%s)", name, error)
    return found


@torch.inference_mode()
def _agrees_and_is_faster(
    name: str, kernel: Operation, operation: Operation, operands: tuple[Any, ...], clock: Clock
) -> bool:
    found, expected = _results(kernel, operands), _results(operation, operands)
    share = EQUAL_SUMS.get(name, EQUAL)
    if not all(alike(*pair, share) for pair in zip(found, expected, strict=True)):
        log.warning("fused kernels: %s differs from torch's operation on this GPU", name)
        return False
    runs = {TORCH: _repeated(operation, operands), name: _repeated(kernel, operands)}
    return fastest(median_times(runs, clock)) == name


def _results(operation: Operation, operands: tuple[Any, ...]) -> list[Tensor]:
    """The results of an operation and its operands afterwards, which are then restored."""
    given = [operand for operand in operands if isinstance(operand, Tensor)]
    before = [operand.clone() for operand in given]
    out = operation(*operands)
    found = [part.clone() for part in (*(out if isinstance(out, tuple) else (out,)), *given)]
    for operand, value in zip(given, before, strict=True):
        operand.copy_(value)
    return found


def _repeated(operation: Operation, operands: tuple[Any, ...]) -> Callable[[], None]:
    """CALLS calls; on a GPU replayed, as in a captured forward, where launches take no time."""
    device = operands[0].device
    replay: Callable[[], None] = partial(_call, operation, operands)
    if device.type == "cuda":
        graph = torch.cuda.CUDAGraph()
        mode = "thread_local"  # other threads may use the GPU
        with torch.cuda.device(device):
            stream, before = capture_stream(device), torch.cuda.current_stream(device)
            try:
                with torch.cuda.graph(graph, stream=stream, capture_error_mode=mode):
                    _call(operation, operands)
            except Exception:
                torch.cuda.set_stream(before)  # torch stays on its own if it cannot end the capture
                raise
        replay = graph.replay

    def run() -> None:
        replay()
        synchronized_time(device)

    return run


def _call(operation: Operation, operands: tuple[Any, ...]) -> None:
    for _ in range(CALLS):
        operation(*operands)


def alike(found: Tensor, expected: Tensor, equal: float = EQUAL) -> bool:
    """Whether a share `equal` of numbers is equal, and the others differ in the last places alone.

    Integers must all be equal. Numbers in float32 are drifts, whose sums may have another order.
    """
    if found.shape != expected.shape or found.dtype != expected.dtype:
        return False
    if expected.dtype == torch.float32:
        return torch.allclose(found, expected, rtol=DRIFT, atol=DRIFT**2)
    if not expected.is_floating_point():
        return torch.equal(found, expected)
    eps = torch.finfo(expected.dtype).eps
    near = torch.allclose(found, expected, rtol=2 * eps, atol=eps / 8)
    return near and float((found == expected).float().mean()) >= equal
