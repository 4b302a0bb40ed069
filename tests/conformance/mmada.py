"""How the engine computes and decodes the cases of MMaDA, text side."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from engine.cache.base import StepPlan
from engine.cache.forward import forward
from engine.cache.methods.none import NoCache
from engine.cache.store import ActivationStore
from engine.catalog import make_policy, make_unmasker
from engine.core.rows import Rows
from engine.models.base import ModelAdapter
from tests.conformance import samplers
from tests.conformance.cases import Case
from tests.conformance.recorders import ObservedRecorder
from tests.conformance.runs import Decoded, Setup

CALL_KIND = 1  # a denoising call of the whole canvas
ARRAYS = frozenset({
    "prompt", "final_ids", "nfe", "unmask_call", "canvas", "call_kind", "in_pos_mask",
    "logit_call", "logit_pos", "logits",
    "out_rows",  # left out: the engine computes other rows of logits
})  # fmt: skip
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
    return Setup(load_adapter(case), spec, lambda: make_policy(spec), lambda: make_unmasker(spec))


def differences(case: Case, found: Decoded, recorder: ObservedRecorder) -> Iterator[str]:
    """Differences in the canvas, the kinds of calls and the positions fed."""
    golden, canvas = case.arrays, found.state.run.length
    if int(golden["canvas"]) != canvas:
        yield f"canvas of {canvas} positions, recorded {int(golden['canvas'])}"
        return
    if (golden["call_kind"] != CALL_KIND).any():
        yield "call_kind differs"
    fed = np.unpackbits(golden["in_pos_mask"], axis=1)[:, :canvas].astype(bool)
    if not np.array_equal(np.array(recorder.fed), fed):
        yield "fed positions differ"


@torch.inference_mode()
def forward_logits(adapter: ModelAdapter, ids: Tensor, rows: Rows, unread: Any) -> Tensor:
    """Raw logits [n, V] of `rows` of a canvas with the ids [T]."""
    store = ActivationStore(adapter.info, (), 1, len(ids), adapter.dtype, adapter.device)
    found = forward(adapter, store, NoCache(), StepPlan(), ids[None], None, rows, unread=unread)
    return found[0]
