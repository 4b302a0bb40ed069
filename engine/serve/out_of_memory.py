"""Races whose models do not fit together, and messages for failed runs with their remedies."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from engine.catalog import derive_plan
from engine.config.race_memory import RaceMemory
from engine.config.spec import RunSpec
from engine.core.device import is_out_of_memory
from engine.models.base import ModelInfo
from engine.models.loading.memory_estimate import (
    InsufficientMemoryError,
    device_key,
    dtype_of,
    gigabytes,
    parameters,
)
from engine.models.loading.registry import is_embedded
from engine.serve.guider_pool import decodes_causally
from engine.serve.limits import AUTO
from engine.serve.memory_budget import spec_run_bytes
from engine.serve.model_pool import ModelPool

NARROW_DTYPE = "bfloat16"


def check_race(
    specs: Sequence[RunSpec], plans: Sequence[Mapping[str, Any]], models: ModelPool
) -> None:
    """Raise InsufficientMemoryError if the lanes of a race fit one by one, but not together.

    `plans` are those of the specs (Session.plan); what their runs need is RaceMemory. Models that
    are held anyway need no more memory: those of paused runs, and the embedded ones. Nothing is
    checked for a lane beside one of those, for lanes on different devices, nor for the device
    `auto`, which has room elsewhere for what does not fit.
    """
    held = {_decoding_model(one, models) for one in models.in_use.specs(paused=True)}
    own = [replace(one, dtype=plan["dtype"]) for one, plan in zip(specs, plans, strict=True)]
    found = {_decoding_model(one, models): plan for one, plan in zip(own, plans, strict=True)}
    new = [key for key in found if key not in held and not is_embedded(key[0])]
    devices = {device_key(one.device) for one in specs}
    apart = len(devices) > 1 or AUTO in devices
    if apart or any(plan["weights_bytes"] is None for plan in plans):
        return
    if len(found) > 1 and len(new) < 2:
        return
    needed = sum(plan["weights_bytes"] for plan in found.values()) + RaceMemory.of(plans).runs
    free = max(plan["free_bytes"] for plan in plans)
    if needed > free:
        what, remedy = "the models of both lanes and a run", "one model for both lanes"
        if len(found) == 1:
            what, remedy = "its weights and the caches of both lanes", "a shorter answer"
        raise InsufficientMemoryError(
            f"model: {what} need {gigabytes(needed)} together, where {gigabytes(free)} are free; "
            f"choose a smaller one, or {remedy}"
        )


def _decoding_model(spec: RunSpec, models: ModelPool) -> tuple[str, str, str]:
    """Name or folder, number format and device of the model that decodes a spec."""
    name = str(models.guiders.decoder_folder(spec)) if decodes_causally(spec) else spec.model
    return name, spec.dtype, device_key(spec.device)


def out_of_memory_message(error: Exception, specs: Collection[RunSpec], models: ModelPool) -> str:
    """The message of a failed run; if memory ran out, with remedies that apply to its specs.

    If model or device cannot be read any more, as after some failures of a GPU, it has one remedy.
    """
    if not is_out_of_memory(error):
        return f"The run failed: {error}. Change the settings or run it again."
    spec = max(specs, key=lambda one: one.gen_length)
    try:
        found = list(remedies(models.formats.known(spec), models))
    except (ValueError, RuntimeError, OSError):
        found = ["lower gen_length"]
    return (
        f"The device {spec.device} ran out of memory, and the run's memory was freed; "
        f"{', or '.join(found)}."
    )


def remedies(spec: RunSpec, models: ModelPool) -> Iterator[str]:
    """Changes of one field that at least halve the memory of the run or of the model."""
    info = models.run_info(spec)
    if info is None:  # memory ran out while its model was fetched
        yield "choose a smaller model"
        return
    shorter = shorter_answer(spec, info, len(models.prompt(spec) or ()))
    yield f"lower gen_length to {shorter}" if shorter else "shorten the prompt"
    if dtype_of(spec).itemsize > dtype_of(replace(spec, dtype=NARROW_DTYPE)).itemsize:
        yield f"set dtype to {NARROW_DTYPE}"
    if decodes_causally(spec):  # its `model` is not loaded
        return
    count = parameters(info)
    rows = [row for row in models.describe() if row["available"] and row["parameters"]]
    smaller = [row for row in rows if 2 * row["parameters"] <= count]
    if smaller:
        yield f"choose {max(smaller, key=lambda row: row['parameters'])['name']} as the model"


def shorter_answer(spec: RunSpec, info: ModelInfo, tokens: int) -> int | None:
    """The longest answer of whole blocks whose run needs at most half the memory, or None."""
    most = spec_run_bytes(spec, info, tokens) // 2
    for length in range(spec.gen_length - spec.block_length, 0, -spec.block_length):
        try:
            shorter = replace(spec, gen_length=length)
            derive_plan(shorter)
        except ValueError:
            continue
        if spec_run_bytes(shorter, info, tokens) <= most:
            return length
    return None
