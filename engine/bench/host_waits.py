"""waits: how often the host waits for the device, as a profiler's trace shows it."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from itertools import islice
from typing import NamedTuple

from torch.autograd import DeviceType
from torch.profiler import ProfilerActivity, profile, record_function

from engine.generate.job import Job
from engine.generate.loop import Denoiser, denoise
from engine.generate.step_state import PendingStep

STEP = "denoising step"
WAITING = ("cudaStreamSynchronize", "cudaDeviceSynchronize", "cudaEventSynchronize", "cudaMemcpy")
PASSES = 2  # a forward is captured when it is met again, at the latest in a second pass


class Waits(NamedTuple):
    """Waits a step, of the host for the device: while it asks for the step, and altogether."""

    inside: float
    all: float


class _Traced(Denoiser):
    """Its steps stand in a profiler's trace."""

    def step(self, block: slice, block_index: int, block_step: int) -> PendingStep:
        with record_function(STEP):
            return super().step(block, block_index, block_step)


def warmed(job: Job, kind: type[Denoiser] = Denoiser, most: int | None = None) -> Denoiser:
    """The start of a run whose forwards are captured, where they are captured at all.

    `most` is how many of its steps will be taken, None: all.
    """
    state = kind(job)
    for passed in range(PASSES if job.capturer is not None else 0):
        if passed and all(branch.graphs.settled for branch in state.branches):
            break
        deque(islice(denoise(state), most), maxlen=0)
        state.rewind()
    return state


def count_waits(job: Job) -> Waits:
    """The waits of a whole run on a GPU."""
    state = warmed(job, _Traced)
    with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as trace:
        deque(denoise(state), maxlen=0)
    return counted(
        (event.name, event.time_range.start, event.time_range.end)
        for event in trace.events() or ()
        if event.device_type == DeviceType.CPU
    )


def counted(events: Iterable[tuple[str, float, float]]) -> Waits:
    """The waits among a trace's events, each its name, start and end, up to the last step's end.

    An asynchronous copy is no wait.
    """
    known = list(events)
    steps = [(start, end) for name, start, end in known if name == STEP]
    if not steps:
        raise ValueError("trace: it holds no step; run a state that marks them")
    first, last = min(start for start, _ in steps), max(end for _, end in steps)
    at = [start for name, start, _ in known if name in WAITING and first <= start < last]
    inside = sum(any(start <= moment < end for start, end in steps) for moment in at)
    return Waits(inside / len(steps), len(at) / len(steps))
