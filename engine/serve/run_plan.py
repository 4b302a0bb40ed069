"""The plan of a run: its work, memory and number format, before anything is loaded."""

from __future__ import annotations

import dataclasses
from typing import Any

from engine import catalog
from engine.config.spec import RunSpec
from engine.serve.guider_pool import decodes_causally
from engine.serve.limits import planned_recording
from engine.serve.loaded_model import check_context
from engine.serve.memory_budget import MemoryBudget
from engine.serve.model_pool import ModelPool
from engine.vision.run_images import image_flops, image_rows


def plan_run(models: ModelPool, spec: RunSpec, recording_limit: int) -> dict[str, Any]:
    """The derived plan of a spec, the prompt's tokens, the model's context and the memory.

    `image_rows` of the `prompt_tokens` are rows of images, which take `image_flops` once.
    `end_of_text`: the rule by which the run ends. `dtype`: its number format, `dtype_reason`:
    why `auto` is that one, or empty. `attention`: that of the model, empty if
    unknown. `probe_forwards`: most exact forwards that level `probe` adds. `weights_bytes`,
    `memory_bytes` (weights and run), `free_bytes`: of the device. `fetch_bytes`: to download, a
    guider's included if known. `guider_bytes`: the guider's memory, None if unknown before its
    download. `recording`: the level, the bytes that the recorder keeps of it at most, and why
    that is refused (or empty); of level `layers` if the spec's is `off`; None if the sizes of
    model or prompt are unknown. The network is not used: `prompt_tokens` is None for a model
    that is not on disk, and so are the bytes if it is not registered either.
    Raises ValueError naming the field that makes the run impossible.
    """
    (spec,) = catalog.with_end_of_text_rules([spec])
    number_format = models.formats.choice(spec)
    spec = dataclasses.replace(spec, dtype=number_format.dtype)
    info, found = models.run_info(spec), models.run_prompt(spec)
    prompt = None if found is None else found.ids
    tokens = None if prompt is None else len(prompt)
    derived, scheduled = catalog.derive_plan(spec, info, tokens)
    vision = models.vision(spec.model) if spec.images else None
    shown, recording = image_rows(spec, vision), None
    if info is not None:
        if not decodes_causally(spec):
            catalog.check_model(spec, info)
        check_context(tokens or shown + 1, spec, info)
        recording = planned_recording(spec, info, tokens or shown + 1, recording_limit)
    if prompt is not None and info is not None and not decodes_causally(spec):
        models.guiders.check(spec, models.tokenizer(spec.model), info, prompt)
    budget = models.memory_budget(spec, tokens or shown + 1)
    memory: dict[str, int | None] = dict.fromkeys(MemoryBudget._fields)
    if budget is not None:
        memory |= budget._asdict()
    memory["fetch_bytes"] = models.run_fetch_bytes(spec)
    memory["guider_bytes"] = models.guiders.planned_bytes(spec, tokens or 1)
    probes = 0 if decodes_causally(spec) else spec.max_probes(derived.max_forwards)
    return dataclasses.asdict(derived) | memory | {
        "prompt_tokens": tokens, "context": None if info is None else info.max_length,
        "scheduled": scheduled, "probe_forwards": probes, "image_rows": shown,
        "image_flops": image_flops(spec, vision), "recording": tokens and recording,
        "end_of_text": spec.eos, "attention": "" if info is None else info.attention,
        "dtype": spec.dtype, "dtype_reason": number_format.reason,
    }  # fmt: skip
