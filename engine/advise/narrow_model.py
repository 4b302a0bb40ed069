"""NarrowModel: what a setting recomputes in each step, found without the model's weights.

A cache method decides by the schedule, or by how far rows have drifted, which rows it recomputes.
A model with random weights that is as deep as the real one, and as narrow as possible in the same
proportions, makes the same decisions of the first kind, and as many of the second kind if the
method recomputes a set number of rows. Its runs take a fraction of the time.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

import numpy as np
import torch

from engine.catalog import make_unmasker
from engine.config.spec import RunSpec
from engine.core.events import PARTS, StepEvent
from engine.core.files import ASSETS
from engine.generate.loop import Denoiser, denoise
from engine.models.base import ModelInfo
from engine.models.loading.families import adapter_class, embedded_models
from engine.models.loading.random_weights import (
    MINIMUM,
    PUBLISHED,
    random_adapter,
    random_model_config,
    random_name,
    random_prompt,
)
from engine.models.tokenizer import Tokenizer
from engine.record import make_recorder
from engine.serve.loaded_model import LoadedModel, make_job

ROTARY_DIM = 2  # rotary embeddings turn pairs of numbers


@dataclass(frozen=True)
class PlannedStep:
    """What a step computes.

    `rows` [layers, SITES, T] bool marks the values computed, `flops` [PARTS] int64 are those of the
    narrow model, `recomputed` is the share of token-layers.
    """

    rows: np.ndarray
    flops: np.ndarray
    recomputed: float


class NarrowModel:
    """The narrow counterpart of a model.

    Raises ValueError naming `model` if its family has no published sizes.
    """

    def __init__(self, info: ModelInfo) -> None:
        if info.family not in PUBLISHED:
            raise ValueError(f"model: settings are searched for {', '.join(PUBLISHED)} only")
        inner = info.ffn if info.experts is None else info.experts.ffn
        config = PUBLISHED[info.family]  # whose share of turned values the narrow model has
        known = adapter_class(config).read_info(config)
        head = ROTARY_DIM * known.head_dim // known.rotary_dim
        ffn = max(round(inner * head / info.head_dim), 1)
        wide = info.n_heads * head
        self.name = random_name(info, d=wide, ffn=ffn, vocab=MINIMUM["vocab"], head=head)
        adapter = random_adapter(random_model_config(self.name), torch.float32, torch.device("cpu"))
        adapter.info = replace(adapter.info, stop_ids=())  # no random token ends a run
        tokenizer = Tokenizer(next(iter(embedded_models(ASSETS).values())))
        # The empty digest keeps calibrations of random weights out of the cache folder.
        self._model = LoadedModel(adapter, tokenizer, "")

    def run(self, spec: RunSpec, tokens: int, steps: int | None = None) -> Iterator[PlannedStep]:
        """The steps of a run of `spec` with a prompt of `tokens` tokens.

        `steps`: if confidence decides them, the number of steps that it needs. Raises ValueError
        if the cache does not go with tokens committed by a schedule.
        """
        planned = _scheduled(spec, steps)
        planned = replace(planned, model=self.name, record="steps", prompt="", messages=())
        info = self._model.adapter.info
        prompt = random_prompt(info, tokens)
        job = make_job(self._model, planned, [prompt], make_recorder(planned))
        positions = job.canvas.shape[1]  # with a suffix, or the rest of a last block
        for event in denoise(Denoiser(job)):
            assert event.recording is not None, "the level is `steps`"
            rows = np.unpackbits(event.recording.plan, axis=-1, count=positions).view(bool)
            yield PlannedStep(rows, event.flops, event.recomputed)


def _scheduled(spec: RunSpec, steps: int | None) -> RunSpec:
    """A spec that commits as many tokens in each step, in about so many steps, without stops."""
    spec = replace(spec, dtype="float32", device="cpu", temperature=0.0, stop=())
    if not make_unmasker(spec).confidence_decides:
        return spec
    own = f"{spec.unmasker}."
    knobs = {key: value for key, value in spec.knobs.items() if not key.startswith(own)}
    per_block = max(round((steps or spec.gen_length) / spec.blocks), 1)
    scheduled = min(per_block, spec.block_length) * spec.blocks
    return replace(spec, unmasker="quota", knobs=knobs, steps=scheduled)


def flop_scale(real: np.ndarray, narrow: Iterable[PlannedStep]) -> np.ndarray:
    """FLOPs of a real run over those of the narrow model, [PARTS].

    `real` [PARTS] are those of a run without a cache, `narrow` its steps on the narrow model.
    Selection is scaled as projections, and the guider is left out.
    """
    planned = np.sum([step.flops for step in narrow], axis=0)
    scale = np.divide(real, planned, out=np.zeros(len(PARTS)), where=planned > 0)
    scale[PARTS.index("selection")] = scale[PARTS.index("projections")]
    return scale


def step_flops(event: StepEvent) -> np.ndarray:
    """FLOPs of a step by part, without the guider, [PARTS] float64."""
    found = event.flops.astype(float)
    found[PARTS.index("guider")] = 0
    return found
