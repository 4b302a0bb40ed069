"""How the engine computes and decodes the cases of MMaDA, text side."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

from engine.catalog import make_policy, make_unmasker
from engine.models.base import ModelAdapter
from tests.compat.loops import denoiser_of_every_step
from tests.conformance import samplers
from tests.conformance.cases import Case
from tests.conformance.runs import Setup

SETTINGS: dict[str, Any] = samplers.LENGTHS | {"cfg_scale": None, "attention_mask": ("ones",)}


def load_adapter(case: Case) -> ModelAdapter:
    """The model; as in the recorded runs, nothing keeps image ids out of an answer."""
    adapter = case.load_adapter()
    adapter.info = replace(adapter.info, text_only=False)
    return adapter


def setup(case: Case) -> Setup:
    """What decodes a case: LLaDA's loop without a cache."""
    case.check_settings(SETTINGS)
    spec = samplers.spec_of(case)
    return Setup(
        load_adapter(case), spec, partial(make_policy, spec), partial(make_unmasker, spec),
        denoiser_of_every_step(spec),
    )  # fmt: skip
