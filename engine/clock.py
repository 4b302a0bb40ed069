"""now: the time at which a device has done what it was asked."""

from __future__ import annotations

import time

import torch


def now(device: torch.device) -> float:
    """Seconds of a clock that only rises, read once the device is idle."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return time.perf_counter()
