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
from collections.abc import Generator, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch
from huggingface_hub import constants
from safetensors import SafetensorError, safe_open
from torch import Tensor

from engine.core.files import cache_path, write_atomically
from engine.core.progress import Progress, run_to_end

MAX_JSON_BYTES, MAX_MESSAGE = 50_000_000, 600  # bytes of a file; characters of an error message
DTYPE_BYTES = {"F64": 8, "F32": 4, "F16": 2, "BF16": 2}  # dtypes that are read
READ_BYTES, HASH_BYTES = 32 << 20, 8 << 20  # most bytes read at once, for a tensor and a hash
OPEN_BYTES = 8 << 20  # a file is opened anew when more was read of it
SMALL_FILE_BYTES = 64 << 20  # larger files enter a digest by their own SHA-256
SHA256 = re.compile("[0-9a-f]{64}")
INDEX = "model.safetensors.index.json"
LORA = ".lora_"  # in the names of the tensors of an adapter
PICKLES = ("*.bin", "*.pt", "*.pth", "*.ckpt", "*.pkl")


class CheckpointError(ValueError):
    """A checkpoint cannot be used; the message names the file or tensor and the remedy.

    Names come from files and may have any length, so a long message loses its middle.
    """

    def __init__(self, message: str) -> None:
        if len(message) > MAX_MESSAGE:
            message = f"{message[: MAX_MESSAGE // 2]} ... {message[-MAX_MESSAGE // 2 :]}"
        super().__init__(message)


def read_json(path: Path) -> dict[str, Any]:
    """The object in a JSON file; CheckpointError names a file that holds none or is missing."""
    try:
        if regular_file(path).stat().st_size > MAX_JSON_BYTES:
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


def regular_file(path: Path) -> Path:
    """`path`, checked to be a regular file of its folder or of the Hub's cache around that folder.

    Raises CheckpointError if it links elsewhere or is no regular file, FileNotFoundError if it
    does not exist.
    """
    real, home = (Path(os.path.realpath(p, strict=True)) for p in (path, path.parent))
    cached = home.parents[1:3] if home.parent.name == "snapshots" else ()  # the model, the cache
    allowed = {home, *(folder / "blobs" for folder in cached)}
    if allowed.isdisjoint(real.parents):
        raise CheckpointError(f"{path.name}: a link out of {home.name}; copy the file into it")
    if not real.is_file():
        raise CheckpointError(f"{path.name}: not a regular file; copy it again")
    return path


class Checkpoint:
    """The tensors of a folder by name, read lazily from its safetensors files.

    `shapes` holds the shapes of the files' headers. Raises CheckpointError if there is no file,
    if a file is damaged or links elsewhere, or if two files hold the same tensor.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._files: dict[str, Path] = {}
        self._dtypes: dict[str, str] = {}
        self.shapes: dict[str, tuple[int, ...]] = {}
        self._opened: tuple[Path, str, Any] | None = None
        self._bytes_read = 0  # of the opened file
        files = sorted(folder.glob("*.safetensors"))
        if not files:
            raise CheckpointError(_no_weights_message(folder))
        index = folder / INDEX
        named = _indexed_files(read_json(index), {f.name for f in files}) if index.exists() else {}
        for path in files:
            self._read_header(path)
        for name, file in named.items():
            if name not in self._files or self._files[name].name != file:
                raise CheckpointError(
                    f"{name}: not in {file}, where the index puts it; copy all shards and the index"
                )

    def check(self, expected: Mapping[str, tuple[int, ...]], skipped: tuple[str, ...] = ()) -> None:
        """Raise CheckpointError unless names and shapes are the `expected` ones.

        All dtypes must be in DTYPE_BYTES. Other tensors are allowed if their names start with one
        of `skipped`.
        """
        missing = sorted(set(expected) - set(self.shapes))
        unknown = sorted(n for n in set(self.shapes) - set(expected) if not n.startswith(skipped))
        if adapters := [name for name in unknown if LORA in name]:
            raise CheckpointError(
                f"{adapters[0]}: of a LoRA adapter, which is not applied; merge it into the "
                f"weights, or move {self._files[adapters[0]].name} out of the folder "
                "if it holds nothing else"
            )
        if missing:
            raise CheckpointError(f"{missing[0]}: missing ({len(missing)} in all); copy all shards")
        if unknown:
            raise CheckpointError(
                f"{unknown[0]}: unknown tensor ({len(unknown)} in all); copy config.json and the "
                "weights from the same checkpoint"
            )
        for name, shape in expected.items():
            if self.shapes[name] != shape:
                raise CheckpointError(
                    f"{name}: shape {list(self.shapes[name])}, but config.json requires "
                    f"{list(shape)}; copy both files from the same checkpoint"
                )
            if self._dtypes[name] not in DTYPE_BYTES:
                raise CheckpointError(
                    f"{name}: {self._dtypes[name]} numbers in {self._files[name].name}; use a "
                    f"checkpoint in {', '.join(DTYPE_BYTES)}, not a quantised one"
                )

    def nbytes(self, name: str, rows: int | None = None) -> int:
        """Size in bytes of the first `rows` rows of a tensor (None: all) in its file."""
        shape = self.shapes[name]
        count = torch.Size(shape).numel()
        return DTYPE_BYTES[self._dtypes[name]] * (
            count if rows is None else count // max(shape[0], 1) * rows
        )

    def read(
        self, name: str, device: torch.device, rows: int | None = None, step: int | None = None
    ) -> Iterator[Tensor]:
        """The first `rows` rows of a tensor (None: all) on a device, in pieces, dtype unchanged.

        A piece has `step` rows, by default at most READ_BYTES bytes, or one row. Raises
        CheckpointError naming the tensor if the file has changed or cannot be read.
        """
        shape = self.shapes[name]
        rows = shape[0] if rows is None else rows
        step = step or max(1, READ_BYTES // max(self.nbytes(name, 1), 1))
        try:
            tensor = self._open(self._files[name], str(device)).get_slice(name)
            self._bytes_read += self.nbytes(name, rows)
            if tuple(tensor.get_shape()) != shape:
                raise CheckpointError(f"{name}: changed while it was read; load it again")
            for start in range(0, rows, step):
                yield tensor[start : min(start + step, rows)]
        except (SafetensorError, OSError) as error:
            raise CheckpointError(
                f"{name}: cannot be read ({error}); copy the file again"
            ) from None

    def digest(self) -> str:
        """Sixteen hex digits of SHA-256 over every byte of the weight files, in order of names."""
        return run_to_end(self.digest_steps())

    def digest_steps(self) -> Generator[Progress, None, str]:
        """`digest` as a generator, so that hashing large files can be stopped.

        Files up to SMALL_FILE_BYTES are hashed as they are, of larger ones the size and the own
        SHA-256.
        """
        sha = hashlib.sha256()
        for path in sorted(set(self._files.values())):
            size = path.stat().st_size
            if size <= SMALL_FILE_BYTES:
                sha.update(path.read_bytes())
            else:
                own = yield from _file_sha256(path.resolve())
                sha.update(size.to_bytes(8, "little") + bytes.fromhex(own))
        return sha.hexdigest()[:16]

    def _open(self, path: Path, device: str) -> Any:
        """An open file, opened anew once OPEN_BYTES were read of it.

        Opening parses its header, which takes milliseconds if thousands of tensors are in it. What
        was read of an open file counts as memory of the process.
        """
        opened = self._opened
        if opened is None or opened[:2] != (path, device) or self._bytes_read > OPEN_BYTES:
            opened = path, device, safe_open(path, framework="pt", device=device)
            self._opened, self._bytes_read = opened, 0
        return opened[2]

    def _read_header(self, path: Path) -> None:
        try:
            with safe_open(regular_file(path), framework="pt") as file:
                found = {n: file.get_slice(n) for n in file.keys()}  # noqa: SIM118
                header = {n: (tuple(t.get_shape()), t.get_dtype()) for n, t in found.items()}
        except CheckpointError:
            raise
        except (SafetensorError, OSError) as error:
            raise CheckpointError(f"{path.name}: damaged ({error}); copy it again") from None
        for name, (shape, dtype) in header.items():
            if name in self._files:
                raise CheckpointError(
                    f"{name}: in both {self._files[name].name} and {path.name}; remove one"
                )
            self._files[name], self.shapes[name], self._dtypes[name] = path, shape, dtype


def _file_sha256(path: Path) -> Generator[Progress, None, str]:
    """SHA-256 of a file, hex; read once, then kept in the user's cache folder.

    The Hub's cache names large files by their SHA-256, so those are not read at all.
    """
    if SHA256.fullmatch(path.name) and Path(constants.HF_HUB_CACHE).resolve() in path.parents:
        return path.name
    before = _file_stamp(path)
    stored = cache_path("file-hashes", before)
    with suppress(OSError, UnicodeError):
        if SHA256.fullmatch(found := stored.read_text("ascii")):
            return found
    sha = hashlib.sha256()
    with path.open("rb") as file:
        while data := file.read(HASH_BYTES):
            sha.update(data)
            yield Progress(0, 0)
    if _file_stamp(path) == before:
        with suppress(OSError):
            write_atomically(stored, sha.hexdigest().encode())
    return sha.hexdigest()


def _file_stamp(path: Path) -> str:
    """Name of a file and its state: it changes whenever the file is written or replaced."""
    now = path.stat()
    state = str(path), now.st_ino, now.st_size, now.st_mtime_ns, now.st_ctime_ns
    return hashlib.sha256(repr(state).encode()).hexdigest()


def _no_weights_message(folder: Path) -> str:
    """Error message for a folder without a safetensors file."""
    pickles = sorted(file.name for kind in PICKLES for file in folder.glob(kind))
    if not pickles:
        return f"{folder.name}: no .safetensors file in it; copy the weights"
    return (
        f"{pickles[0]}: a pickle, which can run code; only .safetensors files are read, so "
        f"convert {folder.name} to that format"
    )


def _indexed_files(index: Mapping[str, Any], present: set[str]) -> dict[str, str]:
    """The file of each tensor by an index; CheckpointError names a file not in the folder."""
    named = index.get("weight_map")
    if not isinstance(named, dict) or not all(isinstance(v, str) for v in named.values()):
        raise CheckpointError(f"{INDEX}: weight_map is missing")
    absent = sorted(set(named.values()) - present)
    if absent and ("/" in absent[0] or "\\" in absent[0]):
        raise CheckpointError(
            f"{INDEX}: names {absent[0]!r}, a file outside the folder; copy the index that belongs "
            f"to these shards"
        )
    if absent:
        raise CheckpointError(f"{absent[0]}: named by the index but missing; copy all shards")
    return named
