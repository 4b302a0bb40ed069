"""The device of a run: copies to and from the host, clocks and memory.

Of the transfers only `HostCopy.get` makes the host wait for the device.
"""

from __future__ import annotations

import errno
import gc
import platform
import re
import time
from contextlib import suppress
from functools import cache
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

Mark = float | torch.cuda.Event
KEPT_BYTES = 8_000_000  # each thread that has run a model may keep twice as many
# RuntimeErrors of torch's CPU allocator, of CUDA and other devices, of cuBLAS and cuDNN, of C++.
OUT_OF_MEMORY_TEXT = re.compile(
    r"DefaultCPUAllocator: (can't allocate|not enough) memory|\bout of memory\b"
    r"|\bCU\w+_STATUS_ALLOC_FAILED\b|^std::bad_alloc$"
)
_CLEAR_REFS, _STATUS = Path("/proc/self/clear_refs"), Path("/proc/self/status")


@cache
def cpu_name() -> str:
    """The model name of this machine's processor, or its architecture if it is unknown."""
    try:
        lines = Path("/proc/cpuinfo").read_text("utf-8").splitlines()
    except OSError:
        lines = []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return next(filter(None, names), platform.machine())


def device_name(device: str | torch.device) -> str:
    """The name of a GPU, or of this machine's processor."""
    found = torch.device(device)
    return torch.cuda.get_device_name(found) if found.type == "cuda" else cpu_name()


def upload(values: np.ndarray, device: torch.device) -> Tensor:
    """Copy an array to a device without waiting; to a GPU by way of pinned memory.

    On a CPU the tensor shares the memory of `values`.
    """
    tensor = torch.from_numpy(values)
    if device.type == "cpu":
        return tensor
    if device.type == "cuda":
        tensor = tensor.pin_memory()
    return tensor.to(device, non_blocking=True)


class HostCopy:
    """An asynchronous copy of tensors of one device to the host, started when it is made."""

    def __init__(self, *tensors: Tensor) -> None:
        self._parts = [tensor.to("cpu", non_blocking=True) for tensor in tensors]
        self._arrival: torch.cuda.Event | None = None
        device = tensors[0].device
        if device.type == "cuda":
            self._arrival = torch.cuda.Event()
            self._arrival.record(torch.cuda.current_stream(device))

    def get(self) -> tuple[np.ndarray, ...]:
        """Wait for the copies and return them; read only, since a CPU's share the tensors."""
        if self._arrival is not None and not self._arrival.query():
            self._arrival.synchronize()
        return tuple(part.numpy() for part in self._parts)


class Clock:
    """Times work on a device without waiting for it: by events on a GPU, host time on a CPU."""

    def __init__(self, device: torch.device) -> None:
        self._device = device

    def mark(self) -> Mark:
        """The moment at which the device has finished all work submitted so far."""
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


def synchronized_time(device: torch.device) -> float:
    """Seconds of a monotonic clock, read after the device has finished its work."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return time.perf_counter()


@cache
def capture_stream(device: torch.device) -> torch.cuda.Stream:
    """The stream of all captures on a GPU.

    That of `torch.cuda.graph` belongs to the GPU of the first capture of the process.
    """
    return torch.cuda.Stream(device)


def is_out_of_memory(error: Exception) -> bool:
    """Whether an exception says that a device or the host ran out of memory."""
    if isinstance(error, OSError):
        return error.errno == errno.ENOMEM
    if isinstance(error, MemoryError | torch.OutOfMemoryError):
        return True
    return isinstance(error, RuntimeError) and bool(OUT_OF_MEMORY_TEXT.search(str(error)))


def reset_peak_memory(device: torch.device) -> None:
    """Restart `peak_memory`; on a CPU for the whole process, if the system allows it."""
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)
        return
    with suppress(OSError):
        _CLEAR_REFS.write_text("5", "ascii")  # Linux: sets VmHWM to the current resident set


def peak_memory(device: torch.device) -> int | None:
    """Peak bytes allocated on a GPU, or resident in this process; None if unknown."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    try:
        lines = _STATUS.read_text("ascii", "replace").splitlines()  # the process may have any name
    except OSError:
        return None
    found = next((line for line in lines if line.startswith("VmHWM:")), None)
    return None if found is None else int(found.split()[1]) * 1024


def keep_freed_memory() -> None:
    """Let the C library reuse freed memory, up to twice KEPT_BYTES per thread.

    It is a setting of the process; a second call changes nothing. Every layer of every step frees
    and allocates the same few megabytes. By default glibc returns them to the system, and the page
    faults of the next allocation take up to a sixth of the time of a plain step. glibc raises its
    threshold to the largest block freed so far, at most 32 MiB.
    """
    torch.empty(KEPT_BYTES, dtype=torch.uint8)


def free_memory() -> None:
    """Collect reference cycles and return the GPU allocator's unused memory to the device."""
    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
