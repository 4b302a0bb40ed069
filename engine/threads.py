"""best_threads: how many threads make a small model fastest on this machine, measured."""

from __future__ import annotations

import os
import time

import torch

SHAPES = ((32, 128, 688), (640, 128, 688))
REPEATS = 15


def best_threads(cores: int | None = None) -> int:
    """The number of torch threads under which products of a small model's shapes take least time.

    One is kept unless more are a tenth faster: on small shared machines several often lose.
    The setting in force is left as it was.
    """
    cores = cores or os.cpu_count() or 1
    before = torch.get_num_threads()
    try:
        times = {n: _time(n) for n in sorted({1, max(cores // 2, 1), cores})}
    finally:
        torch.set_num_threads(before)
    best = min(times, key=lambda n: times[n])
    return best if times[best] < 0.9 * times[1] else 1


def _time(threads: int) -> float:
    """Least seconds for one product of each shape."""
    torch.set_num_threads(threads)
    total = 0.0
    for rows, inner, outer in SHAPES:
        a, b = torch.ones(rows, inner), torch.ones(inner, outer)
        runs = []
        for _ in range(REPEATS):
            start = time.perf_counter()
            torch.mm(a, b)
            runs.append(time.perf_counter() - start)
        total += min(runs)
    return total
