"""memory: the most that a device held since a moment, and what is held for nobody."""

from __future__ import annotations

import gc
from contextlib import suppress
from pathlib import Path

import torch

KEPT = 8_000_000  # bytes, of which every thread that has run a model may keep twice as many
_CLEAR, _STATUS = Path("/proc/self/clear_refs"), Path("/proc/self/status")


def reset_peak(device: torch.device) -> None:
    """Forget the peak so far. On a CPU that of the process, where the system lets us."""
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)
        return
    with suppress(OSError):
        _CLEAR.write_text("5", "ascii")  # Linux: resets VmHWM to what is resident now


def peak(device: torch.device) -> int | None:
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
