"""Memory that a spec's model and run need on a device, and what is free there."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from itertools import chain
from typing import NamedTuple, TypeVar

import torch
from torch import nn

from engine.cache.base import RunInfo
from engine.catalog import make_policy
from engine.config.spec import RunSpec
from engine.core.control import Control
from engine.core.device import free_memory
from engine.core.progress import Progress
from engine.models.base import ModelInfo
from engine.models.loading.memory_estimate import (
    InsufficientMemoryError,
    check_fits,
    dtype_of,
    gigabytes,
    main_device,
    run_bytes,
    store_bytes,
    weights_bytes,
)
from engine.record.last_values import quantity_widths
from engine.trace.schema import MAX_POSITIONS

T = TypeVar("T")
MAX_END, POLL = 5.0, 0.05  # seconds: longest wait for a stopped run to end, and between two looks
BFLOAT16_CAPABILITY = 8  # lowest major compute capability with native bfloat16


class MemoryBudget(NamedTuple):
    """Bytes of the weights, of weights and run together, and free on the device before both.

    `kept_bytes` are those of caches and recorder that stay from step to step. The rest passes with
    a step, apart from that of a guider and a vision part.
    """

    weights_bytes: int
    memory_bytes: int
    free_bytes: int
    kept_bytes: int


class InUse:
    """The specs of the runs that hold their models in memory, from the loading to the end.

    A paused run holds them too, though it does not compute. Thread-safe.
    """

    def __init__(self) -> None:
        self._runs: dict[object, tuple[Control, Collection[RunSpec]]] = {}

    def add(self, run: object, control: Control, specs: Collection[RunSpec]) -> None:
        """A run, identified by any object of its own, holds the models of its specs."""
        self._runs[run] = control, specs

    def remove(self, run: object) -> None:
        """A run has ended; nothing happens if it was not added."""
        self._runs.pop(run, None)

    def specs(self, paused: bool = False) -> list[RunSpec]:
        """The specs of the runs that go on, or only of those that are paused."""
        states = ("paused",) if paused else ("running", "paused")
        runs = list(self._runs.values())
        return [spec for control, specs in runs if control.state in states for spec in specs]

    def retry(self, check: Callable[[], object]) -> Iterator[Progress]:
        """`check` whether something fits, a second time after `end_stopped` if it does not."""
        try:
            check()
        except InsufficientMemoryError:
            yield from self.end_stopped()
            check()

    def end_stopped(self) -> Iterator[Progress]:
        """Wait, at most MAX_END, until the runs that were stopped have ended; free their memory.

        A paused run that is stopped in favour of another one may still hold its model for a moment
        when the other one computes.
        """
        last = time.monotonic() + MAX_END
        while any(control.state == "stopped" for control, _ in list(self._runs.values())):
            if time.monotonic() >= last:
                break
            yield Progress(0, 0)
            time.sleep(POLL)
        free_memory()


def plan_memory(
    spec: RunSpec, info: ModelInfo, tokens: int, free: Mapping[str, int], more_bytes: int = 0
) -> MemoryBudget:
    """The budget of a spec with a prompt of `tokens` tokens; `free` are bytes by device.

    `more_bytes` are those of a guider and of a vision part.

    Raises InsufficientMemoryError naming `model` if it does not fit, ValueError naming `device` if
    there is no such device.
    """
    dtype, run = dtype_of(spec), spec_run_bytes(spec, info, tokens) + more_bytes
    main, weights = main_device(spec.device, free), weights_bytes(info, dtype)
    check_fits(info, dtype, spec.device, run, free)
    return MemoryBudget(weights, weights + run, free[main], kept_bytes(spec, info, tokens))


def plan_beside_paused(
    plan: Callable[[Mapping[str, int]], T],
    free: Mapping[str, int],
    later: Callable[[], Mapping[str, int]],
) -> T:
    """`plan` with the bytes `free` by device.

    If it fits only into those that `later` gives, which are free once the paused runs have ended,
    the InsufficientMemoryError says so.
    """
    try:
        return plan(free)
    except InsufficientMemoryError as error:
        text = str(error)
    with suppress(InsufficientMemoryError):
        plan(later())
        text += ", or try again once the runs that are paused have ended"
    raise InsufficientMemoryError(text)


def spec_run_bytes(spec: RunSpec, info: ModelInfo, tokens: int) -> int:
    """Bytes of a spec's activations, caches, logits and recorder; guidance doubles the batch.

    Raises ValueError naming `record_layers` if the model has fewer layers.
    """
    run = _run_info(spec, info, tokens)
    sites = make_policy(spec).sites(run)
    rows = spec.block_length if info.block_causal else spec.gen_length
    found = run_bytes(info, dtype_of(spec), run.length, 1 + run.guided, sites, rows)
    return found + _recorder_bytes(spec, run)


def kept_bytes(spec: RunSpec, info: ModelInfo, tokens: int) -> int:
    """Those of `spec_run_bytes` that stay between steps: caches, and a recorder's last values."""
    run = _run_info(spec, info, tokens)
    sites = make_policy(spec).sites(run)
    cached = store_bytes(info, dtype_of(spec), run.length, 1 + run.guided, sites)
    return cached + _last_values_bytes(spec, run)


def _run_info(spec: RunSpec, info: ModelInfo, tokens: int) -> RunInfo:
    suffix = len(spec.suffix.encode())  # at most as many tokens
    return RunInfo(
        info, 1, tokens, spec.gen_length, spec.block_length, guided=spec.cfg_scale > 0,
        suffix_length=suffix,
    )  # fmt: skip


def _recorder_bytes(spec: RunSpec, run: RunInfo) -> int:
    """Bytes of the values that a recorder holds during a step, one sequence of the run.

    At level `layers` these are the last values of the recorded cells and those that the forward
    computes, of all layers; at level `probe` also the ones before the step and the exact ones. A
    captured forward keeps its own during the exact one.
    """
    if spec.record not in ("layers", "probe"):
        return 0
    numbers = run.info.layers * sum(quantity_widths(run.info)) * run.length
    copies = 1 if spec.record == "layers" else 2
    return copies * (_last_values_bytes(spec, run) + numbers * dtype_of(spec).itemsize)


def _last_values_bytes(spec: RunSpec, run: RunInfo) -> int:
    """Bytes of the last values of the recorded cells, one sequence of the run."""
    if spec.record not in ("layers", "probe"):
        return 0
    info, widths = run.info, quantity_widths(run.info)
    cells = spec.narrowing.cells(info.layers, MAX_POSITIONS, run.answer_length, run.suffix_length)
    last = len(cells.layers) * sum(widths[i] for i in cells.quantities)
    return last * run.length * dtype_of(spec).itemsize


def held_bytes(models: Iterable[nn.Module]) -> Counter[str]:
    """Bytes of the models' weights by device."""
    held: Counter[str] = Counter()
    for tensor in chain.from_iterable(model.parameters() for model in models):
        held[str(tensor.device)] += tensor.nbytes
    return held


def present_devices() -> list[str]:
    """The values that a spec's `device` may have on this machine."""
    several = [f"cuda:{i}" for i in range(torch.cuda.device_count())]
    return ["cpu", *(["cuda"] if several else []), *(several if len(several) > 1 else []), "auto"]


def emulates_bfloat16(gpu: int) -> bool:
    """Whether a GPU, by its index, has no bfloat16 instructions."""
    return torch.cuda.get_device_properties(gpu).major < BFLOAT16_CAPABILITY


def device_titles() -> dict[str, str]:
    """Name and memory of each GPU, and whether it emulates bfloat16, by device."""
    titles = {}
    for i in range(torch.cuda.device_count()):
        found = torch.cuda.get_device_properties(i)
        note = ", bfloat16 emulated: choose float16" if emulates_bfloat16(i) else ""
        titles[f"cuda:{i}"] = f"{found.name}, {gigabytes(found.total_memory)}{note}"
    return titles | ({"cuda": titles["cuda:0"]} if titles else {})
