"""Time the routines of an operation on random operands of a class of shapes."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from functools import partial

import torch

from engine.models.attention import attention, attention_routines
from engine.models.kernels.choice import ROUTINES, TORCH, ShapeClass
from engine.models.kernels.linear import FusedLinear, SwiGLU, supports_onednn

ROUNDS = 5  # timed runs of each routine, in turn
HOPELESS = 1.5  # a routine so many times slower than the best one is not timed again,
SURE = 2  # but only after so many rounds, as another process may have held up one of them
Run = Callable[[], object]
Clock = Callable[[], float]


def times_of(shape: ShapeClass, clock: Clock = time.perf_counter) -> dict[str, float]:
    """Seconds of each routine that this machine has for a class: the fastest of ROUNDS runs."""
    return race(runs_of(shape), clock)


def race(runs: Mapping[str, Run], clock: Clock = time.perf_counter) -> dict[str, float]:
    """Seconds of each of `runs`: the fastest of up to ROUNDS, taken in turn after a warm-up."""
    for run in runs.values():
        run()
    best: dict[str, float] = {}
    for turn in range(ROUNDS):
        for name, run in runs.items():
            if turn >= SURE and best[name] > HOPELESS * min(best.values()):
                continue
            begin = clock()
            run()
            best[name] = min(clock() - begin, best.get(name, float("inf")))
    return best


def runs_of(shape: ShapeClass) -> dict[str, Run]:
    """A call for each routine that this machine has, all on the same operands."""
    dtype, cpu = getattr(torch, shape.dtype), torch.device("cpu")
    draw = torch.Generator().manual_seed(0)

    def random(*sizes: int) -> torch.Tensor:
        return torch.randn(*sizes, generator=draw).to(dtype)

    if shape.operation == "attention":
        keys, width, heads = shape.sizes
        q, k, v = (random(1, n, heads, width) for n in (shape.rows, keys, keys))
        k, v = k.transpose(1, 2), v.transpose(1, 2)
        names = attention_routines(dtype, cpu)
        return {name: partial(attention, q, k, v, None, name) for name in names}
    inner, outputs = shape.sizes
    x = random(1, shape.rows, inner)
    layer = (FusedLinear if shape.operation == "linear" else SwiGLU)(inner, outputs)
    layer.weight = torch.nn.Parameter(random(*layer.weight.shape), requires_grad=False)
    names = ROUTINES[shape.operation] if supports_onednn(dtype, cpu) else (TORCH,)
    if isinstance(layer, SwiGLU):
        return {name: partial(layer.compute, name, x) for name in names}
    return {name: partial(layer.compute, name, x, 0, outputs) for name in names}


def measured(
    shapes: Iterable[ShapeClass], clock: Clock = time.perf_counter
) -> dict[ShapeClass, dict[str, float]]:
    """`times_of` every class, in inference mode."""
    with torch.inference_mode():
        return {shape: times_of(shape, clock) for shape in shapes}
