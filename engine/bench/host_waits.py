"""How often the host waits for a GPU during a run, counted in a profiler trace.

`torch.cuda.set_sync_debug_mode` is not used: it ignores `Event.synchronize`, by which the engine
waits, and does not say in which step a wait falls.
"""

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
TRACED_STEPS = 4  # eager forwards of 32 layers make 10,000 events a step
PASSES = 2  # a forward is captured when it recurs, at the latest in a second pass


class HostWaits(NamedTuple):
    """Waits of the host per step: while a step is launched, and in total."""

    inside: float
    all: float


class _TracedDenoiser(Denoiser):
    """Marks its steps in a profiler trace."""

    def step(
        self, block: slice, block_index: int, block_step: int, fills: slice | None = None
    ) -> PendingStep:
        with record_function(STEP):
            return super().step(block, block_index, block_step, fills)


def with_captures(
    job: Job, kind: type[Denoiser] = Denoiser, max_steps: int | None = None
) -> Denoiser:
    """A run at its start whose forwards are already captured, if the job captures any.

    `max_steps` is how many of its steps will be taken (None: all).
    """
    state = kind(job)
    for index in range(PASSES if job.capturer is not None else 0):
        if index and all(branch.forwards.complete for branch in state.branches):
            break
        deque(islice(denoise(state), max_steps), maxlen=0)
        state.rewind()
    return state


def count_waits(job: Job) -> HostWaits:
    """The waits of the first steps of a run on a GPU."""
    state = with_captures(job, _TracedDenoiser)
    with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as trace:
        deque(islice(denoise(state), TRACED_STEPS), maxlen=0)
    return waits_in_trace(
        (event.name, event.time_range.start, event.time_range.end)
        for event in trace.events() or ()
        if event.device_type == DeviceType.CPU
    )


def waits_in_trace(events: Iterable[tuple[str, float, float]]) -> HostWaits:
    """The waits among trace events (name, start, end), up to the end of the last step.

    Asynchronous copies do not count. Raises ValueError if the trace has no step.
    """
    known = list(events)
    steps = [(start, end) for name, start, end in known if name == STEP]
    if not steps:
        raise ValueError("trace: it has no step; trace a _TracedDenoiser")
    first, last = min(start for start, _ in steps), max(end for _, end in steps)
    starts = [start for name, start, _ in known if name in WAITING and first <= start < last]
    inside = sum(any(start <= moment < end for start, end in steps) for moment in starts)
    return HostWaits(inside / len(steps), len(starts) / len(steps))
