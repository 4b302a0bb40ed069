"""The number format `auto`: bfloat16 where it is faster and costs no right answers, else float32.

On a GPU it is bfloat16, unless the GPU emulates it. On a CPU it is bfloat16 if a forward pass with
the model's sizes is measured GAIN times as fast in it, and if the model's exam (`exam.json`) has
settings in both formats of which none loses more than TOLERANCE of its problems in bfloat16.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple

import torch

from engine.cache.methods.none import exact_logits
from engine.config.spec import AUTO_DTYPE, RunSpec
from engine.core.variables import KERNELS, only_torch_kernels
from engine.models.base import ModelAdapter, ModelInfo
from engine.models.kernels.choice import TORCH
from engine.models.kernels.machine import choose_kernels, keep_measured, read_measured
from engine.models.kernels.measure import median_times
from engine.models.loading.exam_file import FULL, HALF, FormatScores, format_scores
from engine.models.loading.families import read_model_info
from engine.models.loading.memory_estimate import free_bytes, main_device
from engine.models.loading.random_weights import (
    MINIMUM,
    random_adapter,
    random_model_config,
    random_name,
    random_prompt,
)
from engine.models.loading.resolver import ModelResolver
from engine.serve.memory_budget import emulates_bfloat16

GAIN = 1.3
TOLERANCE = 0.005
ROWS, LAYERS = 128, 2  # of the forward pass that is timed
FILES, MAX_BYTES = "formats", 1 << 16  # of the speed-ups in the user's cache
Speedup = Callable[[ModelInfo], float]


class NumberFormat(NamedTuple):
    """A number format and why it was chosen, as a part of a sentence; no reason if it was given."""

    dtype: str
    reason: str


class NumberFormats:
    """Number formats of specs whose `dtype` is `auto`; other specs keep theirs.

    Only the model and the device decide, so all lanes of a race get the same format.

    Args:
        resolver: finds the checkpoint of a model.
        measure: how many times as fast a forward pass is in bfloat16 as in float32.
    """

    def __init__(self, resolver: ModelResolver, measure: Speedup | None = None) -> None:
        self._resolver, self._measure = resolver, measure or bfloat16_speedup

    def known(self, spec: RunSpec) -> RunSpec:
        """The spec in the format that is known without measuring: float32 until it is measured."""
        return replace(spec, dtype=self.choice(spec).dtype)

    def measured(self, spec: RunSpec) -> RunSpec:
        """The spec in its format. What is not known of this machine is measured now."""
        return replace(spec, dtype=self.choice(spec, measure=True).dtype)

    def choice(self, spec: RunSpec, measure: bool = False) -> NumberFormat:
        """The format of a spec, and why, if it is `auto`.

        Raises CheckpointError for a damaged exam.
        """
        if spec.dtype != AUTO_DTYPE:
            return NumberFormat(spec.dtype, "")
        main = main_device(spec.device, free_bytes())
        if main.startswith("cuda"):
            if emulates_bfloat16(torch.device(main).index or 0):
                return NumberFormat(FULL, "this GPU emulates bfloat16")
            return NumberFormat(HALF, "the run is on a GPU")
        folder = self._resolver.find(spec.model)
        scores = [] if folder is None else format_scores(folder)
        if folder is None or not scores:
            return NumberFormat(FULL, "the model has no exam in bfloat16")
        worst = max(scores, key=lambda one: one.lost)
        if worst.lost > TOLERANCE:
            return NumberFormat(FULL, f"bfloat16 costs right answers: {_said(worst)}")
        info = read_model_info(folder)
        gain = _known().get(_sizes(info))
        if gain is None and only_torch_kernels(os.environ):
            return NumberFormat(FULL, f"nothing is timed with {KERNELS}={TORCH}")
        if gain is None and measure:
            gain = self._measure(info)
            keep_measured(FILES, _known() | {_sizes(info): gain})
        if gain is None:
            return NumberFormat(FULL, "bfloat16 is timed on this machine when the run starts")
        timed = f"a forward pass in bfloat16 takes {1 / gain:.2f} times as long as in float32"
        return NumberFormat(HALF if gain >= GAIN else FULL, f"{timed}; {_said(worst)}")


def bfloat16_speedup(info: ModelInfo) -> float:
    """How many times as fast an exact forward pass is in bfloat16 as in float32 on this CPU.

    A model with random weights and the sizes of `info`, but LAYERS layers and a small vocabulary,
    computes ROWS positions.
    """
    config = random_model_config(random_name(info, layers=LAYERS, vocab=MINIMUM["vocab"]))
    cpu = torch.device("cpu")
    adapters = [random_adapter(config, dtype, cpu) for dtype in (torch.float32, torch.bfloat16)]
    for adapter in adapters:
        choose_kernels(adapter)
    with torch.inference_mode():
        times = median_times({str(adapter.dtype): _forward(adapter) for adapter in adapters})
    return times[str(torch.float32)] / times[str(torch.bfloat16)]


def _forward(adapter: ModelAdapter) -> Callable[[], object]:
    """A call that computes the logits of ROWS random tokens."""
    canvas = torch.tensor([random_prompt(adapter.info, ROWS)])
    return lambda: exact_logits(adapter, canvas, slice(0, ROWS))


def _said(scores: FormatScores) -> str:
    """The right answers in both formats, in words."""
    return (
        f"its exam has {scores.bfloat16} of {scores.problems} answers right in bfloat16 and "
        f"{scores.float32} in float32"
    )


def _sizes(info: ModelInfo) -> str:
    """The sizes that decide about the time of a layer."""
    experts = () if info.experts is None else (info.experts.count, info.experts.active)
    sizes = info.d_model, info.n_heads, info.n_kv_heads, info.head_dim, info.ffn, *experts
    return " ".join(map(str, (info.family, *sizes)))


def _known() -> dict[str, float]:
    """The measured speed-ups of this machine by sizes; those that cannot be are left out."""

    def restored(data: Any) -> dict[str, float]:
        gains = {str(key): float(gain) for key, gain in data.items()}
        return {key: gain for key, gain in gains.items() if 0 < gain < math.inf}

    return read_measured(FILES, restored, MAX_BYTES)
