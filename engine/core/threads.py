"""Measures how many torch threads run some work fastest on this machine."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from statistics import geometric_mean

import torch

SHAPES = tuple((rows, 128, 688) for rows in (32, 128, 640))  # rows, inner and outer size
REPEATS = 15
QUOTA = Path("/sys/fs/cgroup/cpu.max")  # of a container: microseconds of a period, or `max`
Works = Sequence[Callable[[], object]]


def products() -> Works:
    """Matrix products of a small model's sizes, of few, some and many rows."""
    operands = [(torch.ones(n, inner), torch.ones(inner, out)) for n, inner, out in SHAPES]
    return [partial(torch.mm, a, b) for a, b in operands]


def usable_cores(quota: Path = QUOTA) -> int:
    """The cores that this process may use: those it is pinned to, within a container's quota.

    They are at most OMP_NUM_THREADS, which torch reads too, if that is a whole number from 1.
    """
    try:
        cores = len(os.sched_getaffinity(0))
    except AttributeError:  # macOS and Windows
        cores = os.cpu_count() or 1
    most = os.environ.get("OMP_NUM_THREADS", "")
    if most.isdecimal():
        cores = min(cores, int(most) or cores)
    try:
        share, period = quota.read_text("utf-8").split()
        return min(cores, max(1, round(int(share) / int(period))))
    except (OSError, ValueError, ZeroDivisionError):  # no container, or no quota
        return cores


def best_threads(cores: int | None = None, works: Works | None = None) -> int:
    """The number of torch threads, at most `cores`, that runs `works` fastest.

    `cores` default to `usable_cores`, `works` to `products`. Numbers are compared by the geometric
    mean of the times, so that small works count as much as large ones. The result is 1 unless more
    threads take less than 90 % of its time, because on small shared machines several threads often
    lose. torch's setting is restored.
    """
    cores, works = cores or usable_cores(), works or products()
    before = torch.get_num_threads()
    try:
        times = {n: _time(n, works) for n in thread_counts(cores)}
    finally:
        torch.set_num_threads(before)
    best = min(times, key=lambda n: times[n])
    return best if times[best] < 0.9 * times[1] else 1


def thread_counts(cores: int) -> list[int]:
    """The numbers of threads to measure: powers of two below `cores`, and `cores`."""
    return [*(2**power for power in range((cores - 1).bit_length())), cores]


def _time(threads: int, works: Works) -> float:
    """The geometric mean of the works' seconds, each at its fastest of REPEATS runs."""
    torch.set_num_threads(threads)
    fastest = []
    for work in works:
        runs = []
        for _ in range(REPEATS):
            start = time.perf_counter()
            work()
            runs.append(time.perf_counter() - start)
        fastest.append(min(runs))
    return geometric_mean(fastest)
