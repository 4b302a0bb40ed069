"""Clock: what a device took for a stretch of work, without holding it up; now, which does."""

from __future__ import annotations

import time

import torch

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
