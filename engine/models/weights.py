"""Checkpoint folders in the Hugging Face layout: config.json and safetensors files."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

MAX_JSON_BYTES = 50_000_000


class CheckpointError(ValueError):
    """A checkpoint cannot be used; the message names the file or tensor and the remedy."""


def read_json(path: Path) -> dict[str, Any]:
    """A JSON object of a checkpoint folder; CheckpointError names the file otherwise."""
    try:
        if path.stat().st_size > MAX_JSON_BYTES:
            raise CheckpointError(f"{path.name}: larger than {MAX_JSON_BYTES} bytes")
        data = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise CheckpointError(
            f"{path.name}: missing in {path.parent.name}; copy the whole folder"
        ) from None
    except (OSError, ValueError, RecursionError):
        raise CheckpointError(f"{path.name}: not readable as JSON; copy it again") from None
    if not isinstance(data, dict):
        raise CheckpointError(f"{path.name}: expected a JSON object")
    return data


class Checkpoint:
    """The tensors of a folder by name, read lazily from its safetensors files.

    Raises CheckpointError for no, damaged or doubled files and tensors.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._where: dict[str, Path] = {}
        self.shapes: dict[str, tuple[int, ...]] = {}
        files = sorted(folder.glob("*.safetensors"))
        if not files:
            raise CheckpointError(f"{folder.name}: no .safetensors file in it; copy the weights")
        index = folder / "model.safetensors.index.json"
        if index.exists():
            self._check_shards(read_json(index), {f.name for f in files})
        for path in files:
            self._read_header(path)

    def check(self, expected: Mapping[str, tuple[int, ...]]) -> None:
        """Compare names and shapes with what the config calls for; the error names tensors."""
        missing = sorted(set(expected) - set(self.shapes))
        unknown = sorted(set(self.shapes) - set(expected))
        if missing:
            raise CheckpointError(f"{missing[0]}: missing ({len(missing)} in all); copy all shards")
        if unknown:
            raise CheckpointError(f"{unknown[0]}: unknown tensor ({len(unknown)} in all)")
        for name, shape in expected.items():
            if self.shapes[name] != shape:
                raise CheckpointError(
                    f"{name}: shape {list(self.shapes[name])}, but config.json asks for "
                    f"{list(shape)}"
                )

    def load(self, name: str, dtype: torch.dtype, device: torch.device) -> Tensor:
        """One tensor in the format and place asked for."""
        try:
            with safe_open(self._where[name], framework="pt", device=str(device)) as file:
                return file.get_tensor(name).to(dtype)
        except (SafetensorError, OSError) as error:
            raise CheckpointError(
                f"{name}: cannot be read ({error}); copy the file again"
            ) from None

    def digest(self) -> str:
        """Sixteen hex digits of SHA-256 over the weight files, in the order of their names."""
        sha = hashlib.sha256()
        for path in sorted(set(self._where.values())):
            with path.open("rb") as file:
                while chunk := file.read(1 << 20):
                    sha.update(chunk)
        return sha.hexdigest()[:16]

    def _read_header(self, path: Path) -> None:
        try:
            with safe_open(path, framework="pt") as file:
                shapes = {n: tuple(file.get_slice(n).get_shape()) for n in file.keys()}  # noqa: SIM118
        except (SafetensorError, OSError) as error:
            raise CheckpointError(f"{path.name}: damaged ({error}); copy it again") from None
        for name, shape in shapes.items():
            if name in self._where:
                raise CheckpointError(f"{name}: stands in {self._where[name].name} and {path.name}")
            self._where[name], self.shapes[name] = path, shape

    @staticmethod
    def _check_shards(index: Mapping[str, Any], present: set[str]) -> None:
        named = index.get("weight_map")
        if not isinstance(named, dict) or not all(isinstance(v, str) for v in named.values()):
            raise CheckpointError("model.safetensors.index.json: weight_map is missing")
        absent = sorted(set(named.values()) - present)
        if absent:
            raise CheckpointError(f"{absent[0]}: named by the index but missing; copy all shards")
