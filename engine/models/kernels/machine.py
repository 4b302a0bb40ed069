"""The kernels of this machine: times measured once, kept in the user's cache."""

from __future__ import annotations

import hashlib
import json
import logging
import os
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any, TypeVar

import torch

from engine.core.device import cpu_name, keep_freed_memory
from engine.core.files import cache_path, write_atomically
from engine.core.variables import on_zero, only_torch_kernels
from engine.models.base import ModelAdapter
from engine.models.feed_forward import ExpertLinear, ExpertSwiGLU
from engine.models.kernels.choice import KEY_CLASSES, ROW_CLASSES, Kernels, ShapeClass
from engine.models.kernels.fused import faster_kernels
from engine.models.kernels.linear import FusedLinear, RoutineLinear
from engine.models.kernels.measure import measured, routine_names

FILES, MAX_BYTES = "kernels", 1 << 20  # of the times in the user's cache
# To be raised when a routine gets faster or is timed in another way, since its times are kept.
ROUTINES_VERSION = 4
K = TypeVar("K")
V = TypeVar("V")
log = logging.getLogger("driftscope")


def choose_kernels(adapter: ModelAdapter) -> None:
    """Let an adapter use the fastest routines of this machine; measures what is not known yet.

    Chooses none if only torch's are wanted, or on ZeroGPU, which has no GPU when a model loads.
    """
    if adapter.device.type == "cpu":
        keep_freed_memory()
    if only_torch_kernels(os.environ):
        return
    if adapter.device.type == "cpu":
        adapter.use_kernels(machine_kernels(shape_classes(adapter)))
    elif adapter.device.type == "cuda" and not on_zero(os.environ):
        adapter.use_kernels(Kernels(fused=faster_kernels(adapter)))


def machine_kernels(shapes: Collection[ShapeClass]) -> Kernels:
    """Measured times of a model's classes on this machine, with the threads torch has now.

    A class with a single routine, as all have in float16, is not measured.
    """
    times = read_measured(FILES, _restored, MAX_BYTES)
    several = (shape for shape in shapes if len(routine_names(shape)) > 1)
    missing = [shape for shape in several if shape not in times]
    if missing:
        found = measured(missing)
        times |= read_measured(FILES, _restored, MAX_BYTES)  # another process may have kept some
        times |= found
        keep_measured(FILES, {shape.key: dict(own) for shape, own in times.items()})
    return Kernels(times, max((shape.others for shape in shapes), default=1))


def shape_classes(adapter: ModelAdapter) -> list[ShapeClass]:
    """The classes of the products and of the attention of an adapter, each once, in order."""
    info, dtype, others = adapter.info, adapter.dtype, weights_mib(adapter)
    sizes: set[tuple[str, tuple[int, ...]]] = {
        ("attention", (keys, info.head_dim, info.n_heads)) for keys in KEY_CLASSES
    }
    for module in (*adapter.block(0).modules(), *adapter.block(-1).modules(), adapter.head):
        if isinstance(module, FusedLinear) and module is adapter.block(0).qkv:
            widths = {"q": info.d_q, "k": info.d_kv, "v": info.d_kv}
            for names in ("q", "k", "v", "qk", "kv", "qkv"):
                sizes.add((module.operation, (info.d_model, sum(widths[n] for n in names))))
        elif isinstance(module, RoutineLinear):
            outputs = module.out_features // (1 if isinstance(module, FusedLinear) else 2)
            sizes.add((module.operation, (module.in_features, outputs)))
        elif isinstance(module, ExpertSwiGLU):
            sizes.add(("gated", (module.weight.shape[2], module.weight.shape[1] // 2)))
        elif isinstance(module, ExpertLinear):
            sizes.add(("linear", (module.weight.shape[2], module.weight.shape[1])))
    found = {
        ShapeClass.of(operation, dtype, rows, size, others)
        for operation, size in sizes
        for rows in ROW_CLASSES
    }
    return sorted(found, key=lambda shape: shape.key)


def weights_mib(adapter: ModelAdapter) -> int:
    """The size of an adapter's weights in MiB, at least 1."""
    return max(1, sum(p.numel() * p.element_size() for p in adapter.parameters()) >> 20)


def measured_path(name: str) -> Path:
    """The file of what was measured on this processor with this torch and number of threads."""
    capability = torch.backends.cpu.get_cpu_capability()  # the instructions that torch uses
    facts = cpu_name(), capability, torch.__version__, torch.get_num_threads(), ROUTINES_VERSION
    digest = hashlib.sha256(" | ".join(map(str, facts)).encode()).hexdigest()[:16]
    return cache_path(name, f"{digest}.json")


def read_measured(name: str, restore: Callable[[Any], dict[K, V]], most: int) -> dict[K, V]:
    """What `restore` makes of the file of `name`.

    Empty if the file is missing, damaged, of another form or larger than `most` bytes.
    """
    path = measured_path(name)
    try:
        if path.stat().st_size > most:
            return {}
        return restore(json.loads(path.read_text("utf-8")))
    except (OSError, ArithmeticError, ValueError, AttributeError, TypeError, RecursionError):
        return {}


def keep_measured(name: str, data: Mapping[str, Any]) -> None:
    """Keep what was measured for the next start; a disk that refuses it is logged."""
    try:
        write_atomically(measured_path(name), json.dumps(data, indent=1, sort_keys=True).encode())
    except OSError as error:
        log.warning("%s: the measured times could not be kept (%s)", name, error)


def _restored(data: Any) -> dict[ShapeClass, Mapping[str, float]]:
    """Times by class; those of another set of routines than this machine's are left out."""
    known = {ShapeClass.from_key(key): times for key, times in data.items()}
    return {
        shape: {name: float(t) for name, t in times.items()}
        for shape, times in known.items()
        if set(times) == set(routine_names(shape))
    }
