"""A recorded case: its settings, arrays and model."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import torch

from engine.models.base import ModelAdapter
from engine.models.kernels.choice import Kernels
from engine.models.loading.checkpoint import Checkpoint
from engine.models.loading.families import folder_adapter_class
from tests.conformance.guided_calls import numbered_by_step

GOLDENS = Path(__file__).parents[1] / "goldens"
FOLDERS = (
    GOLDENS,
    *(GOLDENS / name for name in ("flashdlm", "experts", "block_models", "mmada", "llada-v")),
)

# Samplers that compute confidences in float64, which the engine does for some models only.
DOUBLE = (
    "fastdllm_llada", "dkv_decode", "flashdlm_free_llada", "llada_v_vanilla", "llada_v_fast",
    "llada_v_dllmcache",
)  # fmt: skip

CPU = torch.device("cpu")


class UnknownCaseError(ValueError):
    """A case with a method, setting or value that the comparison does not know."""


@dataclass(frozen=True)
class Case:
    """An entry of cases.json, and the folder that holds its arrays.

    The model is on `device` and computes with `kernels`; None: with torch's own routines.
    """

    entry: Mapping[str, Any]
    folder: Path
    kernels: Kernels | None = None
    device: torch.device = CPU

    @property
    def id(self) -> str:
        """The name of the case and of its file of arrays."""
        return str(self.entry["id"])

    @property
    def method(self) -> str:
        """The implementation that was recorded; "none" if the entry names none.

        Entries with a family name what was called, which is put behind the family.
        """
        if self.entry.get("source") == "ML-GSAI/LLaDA-V":
            return f"llada_v_{self.entry.get('path')}"
        method, family = str(self.entry.get("method", "none")), self.entry.get("family")
        return method if family is None else f"{family}_{method}"

    @property
    def settings(self) -> Mapping[str, Any]:
        """The settings of the recorded run."""
        found: Mapping[str, Any] = self.entry["settings"]
        return found

    @cached_property
    def arrays(self) -> dict[str, np.ndarray]:
        """The recorded arrays by name; calls are numbered as the engine numbers its steps."""
        with np.load(self.folder / f"{self.id}.npz", allow_pickle=False) as file:
            found = dict(file)
        if self.method == "dllm_cache" and self.settings.get("cfg_scale"):
            return numbered_by_step(found, self.settings)
        return found

    @property
    def prompt(self) -> torch.Tensor:
        """The ids [P] of the prompt."""
        return torch.from_numpy(self.arrays["prompt"]).long()

    def check_settings(self, known: Mapping[str, tuple[Any, ...] | None]) -> None:
        """Raise UnknownCaseError for a setting not in `known`, or a value not listed there."""
        for name, value in self.settings.items():
            if name not in known:
                raise UnknownCaseError(f"setting {name} is unknown")
            values = known[name]
            if values is not None and value not in values:
                raise UnknownCaseError(f"setting {name} has the unknown value {value!r}")

    def model_folder(self, name: str) -> Path:
        """The folder of a model: in `models` of the case's folder, or of the folder above."""
        for folder in (self.folder, self.folder.parent):
            if (folder / "models" / name).is_dir():
                return folder / "models" / name
        raise FileNotFoundError(f"{self.folder / 'models' / name}: no such model")

    @cached_property
    def config(self) -> Mapping[str, Any]:
        """The fields of the model's config.json."""
        text = (self.model_folder(self.entry["model"]) / "config.json").read_text()
        found: Mapping[str, Any] = json.loads(text)
        return found

    def load_adapter(self) -> ModelAdapter:
        """The model in float32; its mask and end of text are those of the settings, if given."""
        folder = self.model_folder(self.entry["model"])
        adapter = copy.copy(_loaded(folder, self.kernels, self.device))
        if self.method in DOUBLE:
            adapter.info = replace(adapter.info, double_confidence=True)
        mask, end = (self.settings.get(f"{name}_token_id") for name in ("mask", "eos"))
        if mask is not None:
            adapter.info = replace(adapter.info, mask_id=mask)
        if end is not None:
            adapter.info = replace(adapter.info, eos_id=end, fill_id=end, stop_ids=(end,))
        return adapter


@lru_cache(maxsize=8)
def _loaded(folder: Path, kernels: Kernels | None, device: torch.device) -> ModelAdapter:
    """The model of a folder, whose runs share its weights."""
    if kernels is not None:
        plain = _loaded(folder, None, device)
        with torch.device("meta"):
            adapter = type(plain)(plain.info)
        adapter.load_state_dict(plain.state_dict(), assign=True)
        adapter.requires_grad_(False).eval().use_kernels(kernels)
        return adapter
    return folder_adapter_class(folder).from_checkpoint(Checkpoint(folder), torch.float32, device)


def read_cases(
    folder: Path, kernels: Kernels | None = None, device: torch.device = CPU
) -> Iterator[Case]:
    """The cases of a folder, computed with `kernels` on `device`."""
    for entry in json.loads((folder / "cases.json").read_text()):
        yield Case(entry, folder, kernels, device)
