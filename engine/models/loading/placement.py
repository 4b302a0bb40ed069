"""Placement of a model's weights over GPUs, host memory and disk, with accelerate's hooks.

Activations, the activation store and all norms stay on the main device. A leaf module on another
GPU runs there: its input and output are copied between the devices. Weights in host memory (next
to a GPU) or on disk are loaded to the main device for each call.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from accelerate import infer_auto_device_map
from accelerate.hooks import AlignDevicesHook, add_hook_to_module
from accelerate.utils import OffloadedWeightsLoader, PrefixedDataset
from torch import Tensor, nn

from engine.core.files import cache_path, free_on_disk, write_atomically
from engine.models.base import ModelAdapter, ModelInfo, TransformerBlock
from engine.models.kernels.linear import RoutineLinear
from engine.models.loading import memory_estimate
from engine.models.loading.checkpoint import CheckpointError
from engine.models.loading.memory_estimate import HEADROOM, InsufficientMemoryError, gigabytes
from engine.models.ops import RMSNorm

DISK = "disk"
LAYOUT_VERSION = 1  # to be raised when a weight on disk gets other content under the same name
DEFAULT_LENGTH = 4096  # positions of the run whose memory is left free by default


@dataclass(frozen=True)
class Placement:
    """Device of each weight: `main` for all of them, or as `places` says.

    `places` maps the names of modules to "cpu", "disk" or "cuda:i" and covers every leaf.
    `folder` holds the weights on disk, which later loads reuse; it belongs to one checkpoint in
    one dtype (`offload_folder`).
    """

    main: torch.device
    places: Mapping[str, str] | None = None
    folder: Path | None = None

    def place_of(self, name: str) -> str:
        """The place of a module; ValueError names a module that `places` does not cover."""
        if self.places is None:
            return str(self.main)
        path = name.split(".")
        for depth in range(len(path), -1, -1):
            if (stem := ".".join(path[:depth])) in self.places:
                return self.places[stem]
        raise ValueError(f"device: the map has no place for {name}; add it or a parent module")


def offload_folder(digest: str, dtype: str) -> Path:
    """The folder of the weights on disk of a checkpoint, given by its digest, in a dtype."""
    return cache_path(digest, f"offload-{LAYOUT_VERSION}-{dtype}")


def plan_placement(
    info: ModelInfo,
    dtype: torch.dtype,
    device: str,
    folder: Path | None = None,
    spare: int | None = None,
    free: Mapping[str, int] | None = None,
) -> Placement:
    """The placement for a RunSpec's `device`: "cpu", "cuda", "cuda:i" or "auto".

    "auto" fills the first GPU except for `spare` bytes (None: those of a run over DEFAULT_LENGTH
    positions that stores every site), then the other GPUs, host memory and `folder`. Without a GPU
    the host is the main device. `free` replaces `memory_estimate.free_bytes()`. Raises
    InsufficientMemoryError naming `model` if the main device or the disk is too small, ValueError
    naming an unknown `device`.
    """
    free = memory_estimate.free_bytes() if free is None else free
    main = torch.device(memory_estimate.main_device(device, free))
    if device != "auto":
        return Placement(torch.device(device))
    spare = _default_run_bytes(info, dtype) if spare is None else spare
    if memory_estimate.fits(info, dtype, str(main), spare, free):
        return Placement(main)
    memory_estimate.check_fits(info, dtype, "auto", spare, free)
    places = _infer_places(info, dtype, str(main), spare, free)
    if DISK in places.values():
        _check_disk(info, dtype, Placement(main, places), folder)
    return Placement(main, places, folder)


def weight_modules(
    adapter: ModelAdapter, placement: Placement
) -> Iterator[tuple[str, nn.Module, str]]:
    """Name, module and place of every module that owns weights.

    Norms are always on the main device, a tied head is where the embedding is.
    """
    for name, module in adapter.named_modules():
        if next(module.parameters(recurse=False), None) is None:
            continue
        owner = "embedding" if name == "head" and adapter.info.tied else name
        main = isinstance(module, RMSNorm)
        yield name, module, str(placement.main) if main else placement.place_of(owner)


def holding_device(place: str, main: torch.device) -> torch.device | None:
    """The device that holds the weights of a place; None if they are loaded for each call."""
    loaded = place == DISK or (place == "cpu" and main.type != "cpu")
    return None if loaded else torch.device(place)


class OffloadedWeights(OffloadedWeightsLoader):
    """The weights that are loaded for each call, by name: in memory or in files of a folder.

    Files are written atomically and once; later loads reuse a file of the right size.
    """

    def __init__(self, folder: Path | None) -> None:
        super().__init__(state_dict={}, save_folder=folder, index={})
        self._folder = folder

    def keep(self, name: str, tensor: Tensor) -> None:
        """Keep a tensor in memory."""
        self.state_dict[name] = tensor
        self.all_keys.append(name)

    def stored(self, name: str, like: Tensor) -> bool:
        """Whether a file for a tensor of the shape and dtype of `like` exists; registers it."""
        path = self._path(name)
        if not path.is_file() or path.stat().st_size != like.numel() * like.dtype.itemsize:
            return False
        kind = str(like.dtype).removeprefix("torch.")
        self.index[name] = {"dtype": kind, "shape": list(like.shape)}
        self.all_keys.append(name)
        return True

    def write(self, name: str, tensor: Tensor) -> None:
        """Write a tensor in host memory to its file; InsufficientMemoryError if that fails."""
        path = self._path(name)
        try:
            write_atomically(path, tensor.view(torch.uint8).numpy().data)
        except OSError as error:
            raise InsufficientMemoryError(
                f"model: its weights cannot be written to {path.parent} ({error}); free some space "
                f"there, or choose a smaller model"
            ) from None
        known = self.stored(name, tensor)
        assert known, "it has just been written"

    def __getitem__(self, key: str) -> Tensor:
        try:
            return super().__getitem__(key)
        except (OSError, ValueError) as error:
            raise CheckpointError(
                f"{key}.dat: offloaded weights cannot be read ({error}); delete "
                f"{self._folder} and load the model again"
            ) from None

    def _path(self, name: str) -> Path:
        if self._folder is None:
            raise ValueError("device: the map puts weights on disk, but no folder is given")
        return self._folder / f"{name}.dat"


def attach_hooks(adapter: ModelAdapter, placement: Placement, offloaded: OffloadedWeights) -> None:
    """Attach accelerate's hooks to the leaves of an adapter that are not on the main device."""
    for name, module, place in weight_modules(adapter, placement):
        device = holding_device(place, placement.main)
        if device == placement.main:
            continue
        fetch: dict[str, Any] = {}
        if device is None:
            owner = "embedding" if name == "head" and adapter.info.tied else name
            fetch = {"offload": True, "weights_map": PrefixedDataset(offloaded, f"{owner}.")}
            if isinstance(module, RoutineLinear):
                module.offloaded = True
        target = str(placement.main) if device is None else place
        hook = AlignDevicesHook(execution_device=target, io_same_device=True, **fetch)
        add_hook_to_module(module, hook)


def _default_run_bytes(info: ModelInfo, dtype: torch.dtype) -> int:
    """Bytes of a long run that stores keys, values and both branches of every position."""
    length = min(info.max_length, DEFAULT_LENGTH)
    stored = 2 * (info.d_kv + info.d_model) * length * info.layers * dtype.itemsize
    return stored + memory_estimate.run_bytes(info, dtype, length, rows=min(length, 128))


def _infer_places(
    info: ModelInfo, dtype: torch.dtype, main: str, spare: int, free: Mapping[str, int]
) -> dict[str, str]:
    """The places that accelerate infers from the free bytes, without splitting layers."""
    with torch.device("meta"):
        model = ModelAdapter(info).to(dtype)
    budgets = {
        _accelerate_name(name): max(0, count - count // HEADROOM - (spare if name == main else 0))
        for name, count in free.items()
    }
    found = infer_auto_device_map(
        model, budgets, no_split_module_classes=[TransformerBlock.__name__]
    )
    return {k: f"cuda:{v}" if isinstance(v, int) else str(v) for k, v in found.items()}


def _accelerate_name(name: str) -> int | str:
    """A device in accelerate's notation."""
    return int(name.removeprefix("cuda:")) if name.startswith("cuda") else name


def _check_disk(
    info: ModelInfo, dtype: torch.dtype, placement: Placement, folder: Path | None
) -> None:
    """Raise InsufficientMemoryError if `folder` has no space for the files still to be written."""
    if folder is None:
        raise InsufficientMemoryError(
            "model: part of it would go to disk, but no folder is given; choose a smaller model"
        )
    with torch.device("meta"):
        model = ModelAdapter(info).to(dtype)
    known, need = OffloadedWeights(folder), 0
    for name, module, place in weight_modules(model, placement):
        for leaf, tensor in module.named_parameters(recurse=False):
            if place == DISK and not known.stored(f"{name}.{leaf}", tensor):
                need += tensor.numel() * dtype.itemsize
    if need > (free := free_on_disk(folder)):
        raise InsufficientMemoryError(
            f"model: {gigabytes(need)} of it would go to {folder}, where {gigabytes(free)} are "
            f"free; make room there, or choose a smaller model"
        )
