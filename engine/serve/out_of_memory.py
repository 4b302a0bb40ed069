"""Shortage: what to tell of a run that failed, and what would fit where its memory ran out."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import replace

import torch

from engine.catalog import derive_plan
from engine.config.spec import RunSpec
from engine.models.base import ModelInfo
from engine.models.loading.memory_estimate import parameters
from engine.serve.memory_budget import bytes_of_run, dtype_of
from engine.serve.model_pool import ModelPool

NARROW = "bfloat16"


def is_out_of_memory(error: Exception) -> bool:
    """Whether a device or the host had no memory left."""
    short = isinstance(error, MemoryError | torch.OutOfMemoryError)
    return short or "alloc" in str(error).lower()


def out_of_memory_message(error: Exception, specs: Collection[RunSpec], library: ModelPool) -> str:
    """A failure in plain words, with remedies that these specs leave open."""
    if not is_out_of_memory(error):
        return f"The run failed: {error}. Change the settings or run it again."
    spec = max(specs, key=lambda one: one.gen_length)
    found = list(remedies(spec, library))
    return (
        f"The device {spec.device} ran out of memory. What the run held has been given back: "
        f"{', or '.join(found) if found else 'close what else uses it, and run again'}."
    )


def remedies(spec: RunSpec, library: ModelPool) -> Iterator[str]:
    """Changes of one field that at least halve the run's memory, or the model's."""
    info = library.info(spec.model)
    assert info is not None, "the model has been loaded"
    shorter = shorter_answer(spec, info, len(library.prompt(spec) or ()))
    yield f"lower gen_length to {shorter}" if shorter else "shorten the prompt"
    if dtype_of(spec).itemsize > dtype_of(replace(spec, dtype=NARROW)).itemsize:
        yield f"set dtype to {NARROW}"
    count = parameters(info)
    rows = [row for row in library.describe() if row["available"] and row["parameters"]]
    smaller = [row for row in rows if 2 * row["parameters"] <= count]
    if smaller:
        yield f"choose {max(smaller, key=lambda row: row['parameters'])['name']} as the model"


def shorter_answer(spec: RunSpec, info: ModelInfo, tokens: int) -> int | None:
    """The longest answer in whole blocks whose run takes half the memory, None if there is none."""
    most = bytes_of_run(spec, info, tokens) // 2
    for length in range(spec.gen_length - spec.block_length, 0, -spec.block_length):
        try:
            shorter = replace(spec, gen_length=length)
            derive_plan(shorter)
        except ValueError:
            continue
        if bytes_of_run(shorter, info, tokens) <= most:
            return length
    return None
