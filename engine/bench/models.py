"""Models and prompts for benchmarks: checkpoints, or random weights of a given shape."""

from __future__ import annotations

from dataclasses import replace

import torch

from engine.config.spec import RunSpec
from engine.core.files import ASSETS
from engine.core.progress import run_to_end
from engine.models.base import ModelInfo
from engine.models.kernels.machine import choose_kernels
from engine.models.loading.families import adapter_class, embedded_models
from engine.models.loading.hub import Hub
from engine.models.loading.memory_estimate import check_fits, dtype_of, free_bytes, main_device
from engine.models.loading.random_weights import (
    is_random_model,
    random_adapter,
    random_model_config,
    random_prompt,
)
from engine.models.tokenizer import Tokenizer
from engine.serve.loaded_model import LoadedModel
from engine.serve.memory_budget import spec_run_bytes
from engine.serve.model_pool import ModelPool
from engine.tiny.corpus import exam_questions

SEED, SHOTS, FAMILY = 7, 8, "short_problems"  # of the problem that a checkpoint decodes


class BenchModels:
    """Loads models by spec, or makes them of random weights if the spec names a shape."""

    def __init__(self) -> None:
        folders = embedded_models(ASSETS)
        self._tokenizer_folder = next(iter(folders.values()))
        self._pool = ModelPool(folders, Hub())
        self._random: dict[tuple[str, str, str, bool], LoadedModel] = {}

    def model(self, spec: RunSpec, tokens: int, torch_routines: bool = False) -> LoadedModel:
        """The model of a spec, for prompts of `tokens` tokens; may download a listed model.

        `torch_routines`: a shape uses torch's routines, not those that are measured to be fastest.
        Raises ValueError naming `model` or `device`.
        """
        if spec.device == "auto":
            raise ValueError("device: a benchmark runs on one device; name it")
        device = main_device(spec.device, free_bytes())
        if not is_random_model(spec.model):
            run_to_end(self._pool.fetch(spec))
            return self._pool.load(spec)
        key = spec.model, spec.dtype, device, torch_routines
        if key not in self._random:
            config, dtype = random_model_config(spec.model), dtype_of(spec)
            info = adapter_class(config).read_info(config)
            check_fits(info, dtype, device, spec_run_bytes(spec, info, tokens))
            adapter = random_adapter(config, dtype, torch.device(device))
            if not torch_routines:
                choose_kernels(adapter)
            # The empty digest keeps calibrations of random weights out of the cache folder.
            self._random[key] = LoadedModel(adapter, Tokenizer(self._tokenizer_folder), "")
        return self._random[key]

    def info(self, name: str) -> ModelInfo | None:
        """Sizes of a model; None if it is no shape, and neither on disk nor listed."""
        if not is_random_model(name):
            return self._pool.info(name)
        config = random_model_config(name)
        return adapter_class(config).read_info(config)

    def prompt(self, spec: RunSpec, tokens: int) -> tuple[RunSpec, list[int]]:
        """The spec with its prompt, and the prompt's ids.

        A shape gets `tokens` random ids. A checkpoint whose spec has no prompt gets a problem of
        the corpus after worked examples.
        """
        if is_random_model(spec.model):
            return spec, random_prompt(self.model(spec, tokens).adapter.info, tokens)
        if not spec.prompt and not spec.messages:
            spec = replace(spec, prompt=exam_questions(1, SEED, SHOTS, FAMILY)[0][1])
        ids = self._pool.prompt(spec)
        if ids is None:
            raise ValueError(f"model: {spec.model} is not loaded; call model() first")
        return spec, ids
