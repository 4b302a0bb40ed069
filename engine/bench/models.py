"""Shelf: the models that a benchmark asks for, each made or loaded once, and their prompts."""

from __future__ import annotations

from dataclasses import replace

import torch

from engine.config.spec import RunSpec
from engine.core.files import ASSETS
from engine.core.progress import run_to_end
from engine.models.loading.families import adapter_for, embedded_models
from engine.models.loading.hub import Hub
from engine.models.loading.memory_estimate import check_fits, free_bytes, main_of
from engine.models.loading.random_weights import config_of, is_shape, random_adapter, random_prompt
from engine.models.tokenizer import Tokenizer
from engine.serve.lane import LoadedModel
from engine.serve.memory_budget import bytes_of_run, dtype_of
from engine.serve.model_pool import ModelPool
from engine.tiny.exam import exam

SEED, SHOTS = 7, 8


class BenchModels:
    """Models by spec: of a shape with random weights, else out of the library.

    Raises ValueError naming `model` or `device`.
    """

    def __init__(self) -> None:
        folders = embedded_models(ASSETS)
        self._folder = next(iter(folders.values()))
        self._models = ModelPool(folders, Hub())
        self._made: dict[tuple[str, str, str], LoadedModel] = {}

    def model(self, spec: RunSpec, tokens: int) -> LoadedModel:
        """The model of a spec, for prompts of so many tokens; what is listed may be fetched."""
        if spec.device == "auto":
            raise ValueError("device: what is placed over several is not timed; name one")
        device = main_of(spec.device, free_bytes())
        if not is_shape(spec.model):
            run_to_end(self._models.fetch(spec))
            return self._models.load(spec)
        key = spec.model, spec.dtype, device
        if key not in self._made:
            config, dtype = config_of(spec.model), dtype_of(spec)
            info = adapter_for(config).read_info(config)
            check_fits(info, dtype, device, bytes_of_run(spec, info, tokens))
            adapter = random_adapter(config, dtype, torch.device(device))
            # No digest: nothing that is made of random weights is kept in files.
            self._made[key] = LoadedModel(adapter, Tokenizer(self._folder), "")
        return self._made[key]

    def prompt(self, spec: RunSpec, tokens: int) -> tuple[RunSpec, list[int]]:
        """The spec with what it asks, and the prompt's ids.

        A shape is given `tokens` ids at random; another model that is asked nothing the corpus's
        problem after worked examples.
        """
        if is_shape(spec.model):
            return spec, random_prompt(self.model(spec, tokens).adapter.info, tokens)
        if not spec.prompt and not spec.messages:
            spec = replace(spec, prompt=exam(1, SEED, SHOTS)[0][1])
        ids = self._models.prompt(spec)
        assert ids is not None, "the model has been loaded"
        return spec, ids
