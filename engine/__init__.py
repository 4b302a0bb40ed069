"""Driftscope's engine: decoding with diffusion language models and caches.

The names below are loaded on first use, so that `import engine` loads neither torch nor numpy.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

_PUBLIC = {
    "RunSpec": "engine.config.spec",
    "RaceSpec": "engine.config.spec",
    "Session": "engine.serve.session",
    "Trace": "engine.trace.trace",
    "CachePolicy": "engine.cache.base",
    "LayerPlan": "engine.cache.layer_probe",
    "LayerProbe": "engine.cache.layer_probe",
    "RunInfo": "engine.cache.base",
    "Site": "engine.cache.store",
    "StepPlan": "engine.cache.base",
    "StepView": "engine.cache.base",
    "Unmasker": "engine.unmask.base",
    "Candidates": "engine.unmask.base",
    "Commit": "engine.unmask.base",
    "knob": "engine.config.knobs",
    "embedded_models": "engine.models.loading.families",
}
__all__ = list(_PUBLIC)


def __getattr__(name: str) -> Any:
    """Load a public name on first use; AttributeError for any other."""
    if name not in _PUBLIC:
        raise AttributeError(f"module 'engine' has no attribute {name!r}")
    return getattr(import_module(_PUBLIC[name]), name)
