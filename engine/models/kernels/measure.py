"""Time the routines of an operation on random operands of a class of shapes."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import cycle, groupby, product

import torch
from torch import Tensor

from engine.models.attention import attention, attention_routines
from engine.models.kernels.choice import LAYOUTS, ROUTINES, TORCH, ShapeClass
from engine.models.kernels.linear import FusedLinear, SwiGLU, supports_onednn

ROUNDS = 5  # timed runs of each routine, in turn
HOPELESS = 1.5  # a routine so many times slower than the best one is not timed again,
SURE = 2  # but only after so many rounds, as another process may have held up one of them
MOST_LAYERS = 32  # whose weights are multiplied in turn
LONGEST_TICK = 1e-4  # seconds by which a clock that times a routine may advance at once
Layer = FusedLinear | SwiGLU
Run = Callable[[], object]
Clock = Callable[[], float]


def median_times(runs: Mapping[str, Run], clock: Clock | None = None) -> dict[str, float]:
    """Seconds of each of `runs`: the median of up to ROUNDS, taken in turn after a warm-up.

    `clock` is `suitable_clock()` if None.
    """
    clock = clock or suitable_clock()
    for run in runs.values():
        run()
    found: dict[str, list[float]] = {name: [] for name in runs}
    for turn in range(ROUNDS):
        for name, run in runs.items():
            if turn >= SURE and min(found[name]) > HOPELESS * min(map(min, found.values())):
                continue
            begin = clock()
            run()
            found[name].append(clock() - begin)
    return {name: statistics.median(seconds) for name, seconds in found.items()}


def suitable_clock() -> Clock:
    """The processor time of this thread if torch has one thread, else the elapsed time.

    The processor time excludes time in which another process has the core. Where it advances by
    more than LONGEST_TICK at once (16 ms on Windows), the elapsed time is taken too.
    """
    if torch.get_num_threads() > 1 or tick(time.thread_time) > LONGEST_TICK:
        return time.perf_counter
    return time.thread_time


def tick(clock: Clock) -> float:
    """The least of three steps by which a clock advances, in seconds.

    `time.get_clock_info` gives the unit of the numbers, which may be far shorter.
    """
    return min(_advance(clock) for _ in range(3))


def _advance(clock: Clock) -> float:
    begin = now = clock()
    while now == begin:
        now = clock()
    return now - begin


def layers_of(shape: ShapeClass) -> list[Layer]:
    """Layers with the weights of a product, `shape.others` MiB in all; none for an attention."""
    if shape.operation == "attention":
        return []
    inner, outputs = shape.sizes
    draw = torch.Generator().manual_seed(1)
    weight = _random(draw, shape, outputs * (1 if shape.operation == "linear" else 2), inner)
    count = max(1, min(MOST_LAYERS, (shape.others << 20) // weight.nbytes))
    layers = [_layer(shape, weight.clone()) for _ in range(count)]
    copying = [name for name in routine_names(shape) if name in LAYOUTS]
    for layer, name in product(layers, copying):  # copied now, not while they are timed
        layer.compute(name, weight[:1])  # any row
    return layers


def runs_of(shape: ShapeClass, layers: Sequence[Layer]) -> dict[str, Run]:
    """A call for each routine that this machine has, all on the same operands.

    Products take the weights of `layers` in turn, as a step does: from a core's own cache packed
    weights are no faster than others, from elsewhere up to 1.6 times as fast.
    """
    draw = torch.Generator().manual_seed(0)
    if shape.operation == "attention":
        keys, width, heads = shape.sizes
        q, k, v = (_random(draw, shape, 1, n, heads, width) for n in (shape.rows, keys, keys))
        k, v = k.transpose(1, 2), v.transpose(1, 2)
        return {name: partial(attention, q, k, v, None, name) for name in routine_names(shape)}
    x = _random(draw, shape, 1, shape.rows, shape.sizes[0])
    turns = cycle(layers)  # shared, so that no routine finds the weights that another just read
    return {name: partial(_next_product, turns, name, x) for name in routine_names(shape)}


def routine_names(shape: ShapeClass) -> tuple[str, ...]:
    """The routines of a class of shapes that this machine has."""
    dtype, device = getattr(torch, shape.dtype), torch.device("cpu")
    if shape.operation == "attention":
        return attention_routines(dtype, device)
    return ROUTINES[shape.operation] if supports_onednn(dtype, device) else (TORCH,)


def measured(shapes: Iterable[ShapeClass]) -> dict[ShapeClass, dict[str, float]]:
    """Seconds of each routine of every class, by `median_times`."""
    found: dict[ShapeClass, dict[str, float]] = {}
    clock = suitable_clock()
    with torch.inference_mode():
        for _, group in groupby(sorted(shapes, key=_weights), _weights):
            alike = list(group)
            layers = layers_of(alike[0])
            found |= {shape: median_times(runs_of(shape, layers), clock) for shape in alike}
    return found


def _weights(shape: ShapeClass) -> tuple[str, str, tuple[int, ...], int]:
    """What classes with the same weights have in common."""
    return shape.operation, shape.dtype, shape.sizes, shape.others


def _layer(shape: ShapeClass, weight: Tensor) -> Layer:
    kind: Callable[[int, int], Layer] = FusedLinear if shape.operation == "linear" else SwiGLU
    inner, outputs = shape.sizes
    with torch.device("meta"):  # no time goes into weights that are replaced
        layer = kind(inner, outputs)
    layer.weight = torch.nn.Parameter(weight, requires_grad=False)
    return layer


def _next_product(layers: Iterator[Layer], routine: str, x: Tensor) -> Tensor:
    return next(layers).compute(routine, x)


def _random(draw: torch.Generator, shape: ShapeClass, *sizes: int) -> Tensor:
    return torch.randn(*sizes, generator=draw).to(getattr(torch, shape.dtype))
