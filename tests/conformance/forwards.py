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
    adapter, golden = case.load_adapter(), case.arrays
    if "block_length" in case.settings:
        adapter = adapter.with_block_size(case.settings["block_length"])
    rows = torch.from_numpy(golden["logit_pos"])[None].long().to(adapter.device)
    whole = _logits(adapter, case.prompt, ALL)[rows[0]].cpu()
    alone = _logits(adapter, case.prompt, rows).cpu()
    expected = golden["logits"]
    return np.abs(whole.numpy() - expected), np.abs(alone.numpy() - expected), np.abs(expected)


def _logits(adapter: ModelAdapter, ids: torch.Tensor, rows: Rows) -> torch.Tensor:
    store = ActivationStore(adapter.info, (), 1, len(ids), adapter.dtype, adapter.device)
    canvas = ids[None].to(adapter.device)
    with torch.inference_mode():
        return forward(adapter, store, NoCache(), StepPlan(), canvas, None, rows)[0]
