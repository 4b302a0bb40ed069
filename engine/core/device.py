"""Clock: what a device took for a stretch of work, without holding it up; now, which does.

host: crossings between a run's device and the host; of them only HostCopy.get waits.

memory: the most that a device held since a moment, and what is held for nobody."""

from __future__ import annotations

import gc
import time
from contextlib import suppress
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

Mark = float | torch.cuda.Event


class Clock:
    """Marks between pieces of work: of a GPU's stream they are events, of a CPU moments."""

    def __init__(self, device: torch.device) -> None:
        self._device = device

    def mark(self) -> Mark:
        """The moment at which the device has done what it was asked so far."""
        if self._device.type != "cuda":
            return time.perf_counter()
        event = torch.cuda.Event(enable_timing=True)
        event.record(torch.cuda.current_stream(self._device))
        return event

    def ms(self, start: Mark, end: Mark) -> float:
        """Milliseconds between two marks, both of which the device has passed."""
        if isinstance(start, float) or isinstance(end, float):
            assert isinstance(start, float)
            assert isinstance(end, float)
            return (end - start) * 1e3
        return start.elapsed_time(end)


def now(device: torch.device) -> float:
    """Seconds of a clock that only rises, read once the device is idle."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return time.perf_counter()


def upload(values: np.ndarray, device: torch.device) -> Tensor:
    """`values` on a device, by way of pinned memory, so that the host goes on at once.

    On a CPU it shares the memory of `values`.
    """
    tensor = torch.from_numpy(values)
    if device.type == "cpu":
        return tensor
    if device.type == "cuda":
        tensor = tensor.pin_memory()
    return tensor.to(device, non_blocking=True)


class HostCopy:
    """Tensors on their way to the host, all from one device."""

    def __init__(self, *tensors: Tensor) -> None:
        self._parts = [tensor.to("cpu", non_blocking=True) for tensor in tensors]
        self._arrival: torch.cuda.Event | None = None
        device = tensors[0].device
        if device.type == "cuda":
            self._arrival = torch.cuda.Event()
            self._arrival.record(torch.cuda.current_stream(device))

    def get(self) -> tuple[np.ndarray, ...]:
        """The arrays, once they are there; read only, a CPU's are those of the tensors."""
        if self._arrival is not None and not self._arrival.query():
            self._arrival.synchronize()
        return tuple(part.numpy() for part in self._parts)


KEPT = 8_000_000  # bytes, of which every thread that has run a model may keep twice as many
_CLEAR, _STATUS = Path("/proc/self/clear_refs"), Path("/proc/self/status")


def reset_peak_memory(device: torch.device) -> None:
    """Forget the peak so far. On a CPU that of the process, where the system lets us."""
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)
        return
    with suppress(OSError):
        _CLEAR.write_text("5", "ascii")  # Linux: resets VmHWM to what is resident now


def peak_memory(device: torch.device) -> int | None:
    """Bytes at the peak: a GPU's allocations, or the process's resident set; None if unknown."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    try:
        lines = _STATUS.read_text("ascii").splitlines()
    except OSError:
        return None
    found = next((line for line in lines if line.startswith("VmHWM:")), None)
    return None if found is None else int(found.split()[1]) * 1024


def keep_freed() -> None:
    """Let the C library keep what is freed, up to twice KEPT a thread, for what is asked for next.

    A step frees and asks for the same megabytes in every layer; given back, they would be faulted
    in again page by page, a sixth of the time of a plain step. glibc takes the largest block that
    was freed as the measure of what it keeps, of up to 32 MiB.
    """
    torch.empty(KEPT, dtype=torch.uint8)


def give_back() -> None:
    """Free what nobody refers to any more, what refers to itself as well; on the GPUs too."""
    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
