"""best_threads: how many threads make some work fastest on this machine, measured."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from functools import partial

import torch

SHAPES = ((32, 128, 688), (640, 128, 688))
REPEATS = 15
Works = Sequence[Callable[[], object]]


def products() -> Works:
    """Products of a small model's shapes."""
    operands = [(torch.ones(n, inner), torch.ones(inner, out)) for n, inner, out in SHAPES]
    return [partial(torch.mm, a, b) for a, b in operands]


def best_threads(cores: int | None = None, works: Works | None = None) -> int:
    """The number of torch threads, up to `cores`, under which `works` take least time in all.

    None: `products`. One is kept unless more are a tenth faster: on small shared machines several
    often lose. The setting in force is left as it was.
    """
    cores, works = cores or os.cpu_count() or 1, works or products()
    before = torch.get_num_threads()
    try:
        times = {n: _time(n, works) for n in counts(cores)}
    finally:
        torch.set_num_threads(before)
    best = min(times, key=lambda n: times[n])
    return best if times[best] < 0.9 * times[1] else 1


def counts(cores: int) -> list[int]:
    """What is tried: the powers of two below `cores`, and all of them."""
    return [*(2**power for power in range((cores - 1).bit_length())), cores]


def _time(threads: int, works: Works) -> float:
    """Least seconds of each work, summed."""
    torch.set_num_threads(threads)
    total = 0.0
    for work in works:
        runs = []
        for _ in range(REPEATS):
            start = time.perf_counter()
            work()
            runs.append(time.perf_counter() - start)
        total += min(runs)
    return total
