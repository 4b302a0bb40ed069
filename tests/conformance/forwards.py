"""Recorded single forwards of a model over a whole input, without a cache."""

from __future__ import annotations

import numpy as np
import torch

from engine.cache.base import StepPlan
from engine.cache.forward import forward
from engine.cache.methods.none import NoCache
from engine.cache.store import ActivationStore
from engine.core.rows import ALL, Rows
from engine.models.base import ModelAdapter
from tests.conformance.cases import Case

SETTINGS: dict[str, tuple[object, ...] | None] = {"masked": None, "block_length": None}


def gaps(case: Case) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Differences of the recorded rows from those of all rows, and of the wanted rows alone.

    The third array holds the recorded magnitudes. Raises UnknownCaseError for unknown settings.
    """
    case.check_settings(SETTINGS)
    adapter, golden = adapter_of(case), case.arrays
    rows = torch.from_numpy(golden["logit_pos"])[None].long().to(adapter.device)
    whole = logits(adapter, case.prompt, ALL)[rows[0]].cpu()
    alone = logits(adapter, case.prompt, rows).cpu()
    expected = golden["logits"]
    return np.abs(whole.numpy() - expected), np.abs(alone.numpy() - expected), np.abs(expected)


def adapter_of(case: Case) -> ModelAdapter:
    """The model of a case, with its block length if it has one."""
    adapter, size = case.load_adapter(), case.settings.get("block_length")
    return adapter if size is None else adapter.with_block_size(size)


def logits(adapter: ModelAdapter, ids: torch.Tensor, rows: Rows) -> torch.Tensor:
    """Logits [n, V] of `rows` of a whole input [T]."""
    store = ActivationStore(adapter.info, (), 1, len(ids), adapter.dtype, adapter.device)
    canvas = ids[None].to(adapter.device)
    with torch.inference_mode():
        return forward(adapter, store, NoCache(), StepPlan(), canvas, None, rows)[0]
