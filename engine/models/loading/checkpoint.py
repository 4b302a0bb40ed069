"""Checkpoint folders in the Hugging Face layout: config.json and safetensors files.

Folders are untrusted: only JSON and safetensors are read, never code or pickles. A link may leave
its folder only within the Hub's cache, from `snapshots/<commit>` to the `blobs` of the model or to
the `blobs` that all models of the cache share.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from huggingface_hub import constants
from safetensors import SafetensorError, safe_open
from torch import Tensor

from engine.core.files import cache_path, write_whole
from engine.core.progress import run_to_end

MAX_JSON_BYTES, MAX_MESSAGE = 50_000_000, 600  # bytes of a file; characters of an error message
DTYPE_BYTES = {"F64": 8, "F32": 4, "F16": 2, "BF16": 2}  # dtypes that are read
READ_BYTES, HASH_BYTES = 32 << 20, 8 << 20  # most bytes read at once, for a tensor and a hash
SMALL_FILE_BYTES = 64 << 20  # larger files enter a digest by their own SHA-256
INDEX = "model.safetensors.index.json"
PICKLES = ("*.bin", "*.pt", "*.pth", "*.ckpt", "*.pkl")


class CheckpointError(ValueError):
    """A checkpoint cannot be used; the message names the file or tensor and the remedy.

    Names come out of files, so the middle of a message that is too long is left out.
    """

    def __init__(self, message: str) -> None:
        long = len(message) > LONGEST
        super().__init__(
            f"{message[: LONGEST // 2]} ... {message[-LONGEST // 2 :]}" if long else message
        )


def read_json(path: Path) -> dict[str, Any]:
    """A JSON object of a checkpoint folder; CheckpointError names the file otherwise."""
    try:
        if checked(path).stat().st_size > MAX_JSON_BYTES:
            raise CheckpointError(f"{path.name}: larger than {MAX_JSON_BYTES} bytes")
        data = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise CheckpointError(
            f"{path.name}: missing in {path.parent.name}; copy the whole folder"
        ) from None
    except CheckpointError:
        raise
    except (OSError, ValueError, RecursionError):
        raise CheckpointError(f"{path.name}: not readable as JSON; copy it again") from None
    if not isinstance(data, dict):
        raise CheckpointError(f"{path.name}: expected a JSON object")
    return data


def checked(path: Path) -> Path:
    """`path`, which is a plain file of its folder or of the Hub's cache around that folder.

    Raises CheckpointError where a link leads elsewhere or there is no plain file,
    FileNotFoundError where there is nothing.
    """
    real, home = (Path(os.path.realpath(p, strict=True)) for p in (path, path.parent))
    cached = home.parents[1:3] if home.parent.name == "snapshots" else ()  # of the model, of all
    allowed = {home, *(folder / "blobs" for folder in cached)}
    if allowed.isdisjoint(real.parents):
        raise CheckpointError(f"{path.name}: a link out of {home.name}; copy the file into it")
    if not real.is_file():
        raise CheckpointError(f"{path.name}: not a plain file; copy it again")
    return path


class Checkpoint:
    """The tensors of a folder by name, read lazily from its safetensors files.

    `shapes` holds what the files' headers say. Raises CheckpointError for no, damaged, linked or
    doubled files and tensors.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._where: dict[str, Path] = {}
        self._kinds: dict[str, str] = {}
        self.shapes: dict[str, tuple[int, ...]] = {}
        files = sorted(folder.glob("*.safetensors"))
        if not files:
            raise CheckpointError(_no_weights(folder))
        index = folder / INDEX
        named = _shards(read_json(index), {f.name for f in files}) if index.exists() else {}
        for path in files:
            self._read_header(path)
        for name, file in named.items():
            if name not in self._where or self._where[name].name != file:
                raise CheckpointError(
                    f"{name}: not in {file}, where the index has it; copy all shards and the index"
                )

    def check(self, expected: Mapping[str, tuple[int, ...]], skipped: tuple[str, ...] = ()) -> None:
        """Compare names and shapes with what the config calls for; the error names tensors.

        Their numbers must be floating-point, of a format in WIDTHS.
        Tensors whose names start with one of `skipped` may stand beside them.
        """
        missing = sorted(set(expected) - set(self.shapes))
        unknown = sorted(n for n in set(self.shapes) - set(expected) if not n.startswith(skipped))
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
            if self._kinds[name] not in WIDTHS:
                raise CheckpointError(
                    f"{name}: {self._kinds[name]} numbers in {self._where[name].name}; take a "
                    f"checkpoint in {', '.join(WIDTHS)}, not a quantised one"
                )

    def nbytes(self, name: str, rows: int | None = None) -> int:
        """Bytes that the first `rows` rows of a tensor (None: all) take in its file."""
        shape = self.shapes[name]
        count = torch.Size(shape).numel()
        return WIDTHS[self._kinds[name]] * (
            count if rows is None else count // max(shape[0], 1) * rows
        )

    def read(self, name: str, device: torch.device, rows: int | None = None) -> Iterator[Tensor]:
        """The first `rows` rows of a tensor (None: all) on a device, as stored, in short runs.

        Each run is at most CHUNK bytes, or one row. Raises CheckpointError naming the tensor where
        the file has changed or cannot be read.
        """
        shape = self.shapes[name]
        rows = shape[0] if rows is None else rows
        step = max(1, CHUNK // max(self.nbytes(name, 1), 1))
        try:
            with safe_open(self._where[name], framework="pt", device=str(device)) as file:
                tensor = file.get_slice(name)
                if tuple(tensor.get_shape()) != shape:
                    raise CheckpointError(f"{name}: changed while it was read; load it again")
                for start in range(0, rows, step):
                    yield tensor[start : min(start + step, rows)]
        except (SafetensorError, OSError) as error:
            raise CheckpointError(
                f"{name}: cannot be read ({error}); copy the file again"
            ) from None

    def digest(self) -> str:
        """Sixteen hex digits of SHA-256 over the weight files, in the order of their names.

        Files up to WHOLE bytes count whole. Of a larger one the size, the header (names, shapes)
        and SAMPLE bytes at PLACES places spread evenly from its start to its end count: enough to
        tell checkpoints apart without reading all of them.
        """
        sha = hashlib.sha256()
        for path in sorted(set(self._where.values())):
            size = path.stat().st_size
            with path.open("rb") as file:
                if size <= WHOLE:
                    while chunk := file.read(SAMPLE):
                        sha.update(chunk)
                    continue
                header = file.read(8)
                sha.update(size.to_bytes(8, "little") + header)
                sha.update(file.read(int.from_bytes(header, "little")))
                for place in range(PLACES):
                    file.seek((size - SAMPLE) * place // (PLACES - 1))
                    sha.update(file.read(SAMPLE))
        return sha.hexdigest()[:16]

    def _read_header(self, path: Path) -> None:
        try:
            with safe_open(checked(path), framework="pt") as file:
                found = {n: file.get_slice(n) for n in file.keys()}  # noqa: SIM118
                heads = {n: (tuple(t.get_shape()), t.get_dtype()) for n, t in found.items()}
        except CheckpointError:
            raise
        except (SafetensorError, OSError) as error:
            raise CheckpointError(f"{path.name}: damaged ({error}); copy it again") from None
        for name, (shape, kind) in heads.items():
            if name in self._where:
                raise CheckpointError(f"{name}: stands in {self._where[name].name} and {path.name}")
            self._where[name], self.shapes[name], self._kinds[name] = path, shape, kind


def _no_weights(folder: Path) -> str:
    """Why a folder without a safetensors file is refused."""
    pickles = sorted(file.name for kind in PICKLES for file in folder.glob(kind))
    if not pickles:
        return f"{folder.name}: no .safetensors file in it; copy the weights"
    return (
        f"{pickles[0]}: a pickle, which can run code; only .safetensors files are read, so "
        f"convert {folder.name} or take a copy of it in that format"
    )


def _shards(index: Mapping[str, Any], present: set[str]) -> dict[str, str]:
    """An index's file for every tensor; CheckpointError names a file that is not in the folder."""
    named = index.get("weight_map")
    if not isinstance(named, dict) or not all(isinstance(v, str) for v in named.values()):
        raise CheckpointError(f"{INDEX}: weight_map is missing")
    absent = sorted(set(named.values()) - present)
    if absent and ("/" in absent[0] or "\\" in absent[0]):
        raise CheckpointError(
            f"{INDEX}: names {absent[0]!r}, a file outside the folder; take an index that belongs "
            f"to these shards"
        )
    if absent:
        raise CheckpointError(f"{absent[0]}: named by the index but missing; copy all shards")
    return named
