"""place: where a model's weights lie when no device holds them all, by way of accelerate.

Activations, the store and all norms stay on the main device. A leaf module that lies on another
GPU is called there with its input carried over and its output carried back; the weights of one
that lies in the host's memory beside a GPU, or on disk, are fetched to the main device for the
time of its call.
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

from engine.core.files import free_on_disk, write_atomically
from engine.models.base import Block, ModelAdapter, ModelInfo, Norm
from engine.models.linear import Weights
from engine.models.loading import memory_estimate
from engine.models.loading.checkpoint import CheckpointError
from engine.models.loading.memory_estimate import HEADROOM, MemoryShort, gigabytes

DISK = "disk"
RESERVED = 4096  # positions of the run that room is kept for where the caller names no bytes


@dataclass(frozen=True)
class Placing:
    """Where a model goes: all of it to `main`, or by `places`.

    `places` goes from the name of a module to "cpu", "disk" or "cuda:i" and covers every leaf;
    `folder` takes what goes to disk and keeps it for later loads, so it belongs to one checkpoint
    in one number format.
    """

    main: torch.device
    places: Mapping[str, str] | None = None
    folder: Path | None = None

    def of(self, name: str) -> str:
        """The place of a module; ValueError names one that `places` leave out."""
        if self.places is None:
            return str(self.main)
        path = name.split(".")
        for depth in range(len(path), -1, -1):
            if (stem := ".".join(path[:depth])) in self.places:
                return self.places[stem]
        raise ValueError(f"device: the map has no place for {name}; name it or what holds it")


def plan_placing(
    info: ModelInfo,
    dtype: torch.dtype,
    device: str,
    folder: Path | None = None,
    spare: int | None = None,
    free: Mapping[str, int] | None = None,
) -> Placing:
    """The placing that a RunSpec's `device` asks for: "cpu", "cuda", "cuda:i" or "auto".

    "auto" fills the first GPU up to `spare` bytes (None: those of a run over RESERVED positions
    that keeps everything), then the other GPUs, the host's memory and `folder`; with no GPU the
    host is the main device. Raises MemoryShort naming `model` where the main device or the disk is
    too small, ValueError naming `device` where it is not there; `free` stands in for
    `memory_estimate.free_bytes()`.
    """
    free = memory_estimate.free_bytes() if free is None else free
    main = torch.device(memory_estimate.main_of(device, free))
    if device != "auto":
        return Placing(torch.device(device))
    spare = _usual(info, dtype) if spare is None else spare
    if memory_estimate.fits(info, dtype, str(main), spare, free):
        return Placing(main)
    memory_estimate.check_fits(info, dtype, "auto", spare, free)
    places = _inferred(info, dtype, str(main), spare, free)
    if DISK in places.values():
        _check_disk(info, dtype, Placing(main, places), folder)
    return Placing(main, places, folder)


def leaves(adapter: ModelAdapter, placing: Placing) -> Iterator[tuple[str, nn.Module, str]]:
    """Name, module and place of every module that owns weights.

    Norms lie on the main device whatever the map says, a tied head where the embedding does.
    """
    for name, module in adapter.named_modules():
        if next(module.parameters(recurse=False), None) is None:
            continue
        owner = "embedding" if name == "head" and adapter.info.tied else name
        yield name, module, str(placing.main) if isinstance(module, Norm) else placing.of(owner)


def holder(place: str, main: torch.device) -> torch.device | None:
    """The device whose module holds its weights itself; None where they are fetched for a call."""
    fetched = place == DISK or (place == "cpu" and main.type != "cpu")
    return None if fetched else torch.device(place)


class Offloaded(OffloadedWeightsLoader):
    """The weights that are fetched for a call, by name: in memory or in files of a folder.

    A file appears whole or not at all and is written once; a later load finds it by its size.
    """

    def __init__(self, folder: Path | None) -> None:
        super().__init__(state_dict={}, save_folder=folder, index={})
        self._folder = folder

    def keep(self, name: str, tensor: Tensor) -> None:
        """Hold a tensor in memory."""
        self.state_dict[name] = tensor
        self.all_keys.append(name)

    def stored(self, name: str, like: Tensor) -> bool:
        """Whether a file for a tensor of the shape and format of `like` is there; it is used."""
        path = self._path(name)
        if not path.is_file() or path.stat().st_size != like.numel() * like.dtype.itemsize:
            return False
        kind = str(like.dtype).removeprefix("torch.")
        self.index[name] = {"dtype": kind, "shape": list(like.shape)}
        self.all_keys.append(name)
        return True

    def write(self, name: str, tensor: Tensor) -> None:
        """Put a tensor of the host into its file; MemoryShort where that cannot be written."""
        path = self._path(name)
        try:
            write_atomically(path, tensor.view(torch.uint8).numpy().data)
        except OSError as error:
            raise MemoryShort(
                f"model: {path.parent} cannot take its weights ({error}); free some space there, "
                f"or choose a smaller model"
            ) from None
        assert self.stored(name, tensor)

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


def attach(adapter: ModelAdapter, placing: Placing, offloaded: Offloaded) -> None:
    """Make the leaves of an adapter that do not lie on the main device work from where they are."""
    for name, module, place in leaves(adapter, placing):
        device = holder(place, placing.main)
        if device == placing.main:
            continue
        fetch: dict[str, Any] = {}
        if device is None:
            owner = "embedding" if name == "head" and adapter.info.tied else name
            fetch = {"offload": True, "weights_map": PrefixedDataset(offloaded, f"{owner}.")}
            if isinstance(module, Weights):
                module.fetched = True
        target = str(placing.main) if device is None else place
        hook = AlignDevicesHook(execution_device=target, io_same_device=True, **fetch)
        add_hook_to_module(module, hook)


def _usual(info: ModelInfo, dtype: torch.dtype) -> int:
    """Bytes of a long run that keeps keys, values and both branches of every position."""
    length = min(info.max_length, RESERVED)
    kept = 2 * (info.d_kv + info.d_model) * length * info.layers * dtype.itemsize
    return kept + memory_estimate.run_bytes(info, dtype, length, rows=min(length, 128))


def _inferred(
    info: ModelInfo, dtype: torch.dtype, main: str, spare: int, free: Mapping[str, int]
) -> dict[str, str]:
    """The map that accelerate infers over what is free, layers undivided."""
    with torch.device("meta"):
        model = ModelAdapter(info).to(dtype)
    room = {
        _key(name): max(0, count - count // HEADROOM - (spare if name == main else 0))
        for name, count in free.items()
    }
    found = infer_auto_device_map(model, room, no_split_module_classes=[Block.__name__])
    return {k: f"cuda:{v}" if isinstance(v, int) else str(v) for k, v in found.items()}


def _key(name: str) -> int | str:
    """A device as accelerate names it."""
    return int(name.removeprefix("cuda:")) if name.startswith("cuda") else name


def _check_disk(info: ModelInfo, dtype: torch.dtype, placing: Placing, folder: Path | None) -> None:
    """MemoryShort where `folder` has no room for what goes to disk and is not there yet."""
    if folder is None:
        raise MemoryShort(
            "model: part of it would go to disk, but no folder is given; choose a smaller model"
        )
    with torch.device("meta"):
        model = ModelAdapter(info).to(dtype)
    known, need = Offloaded(folder), 0
    for name, module, place in leaves(model, placing):
        for leaf, tensor in module.named_parameters(recurse=False):
            if place == DISK and not known.stored(f"{name}.{leaf}", tensor):
                need += tensor.numel() * dtype.itemsize
    if need > (free := free_on_disk(folder)):
        raise MemoryShort(
            f"model: {gigabytes(need)} of it would go to {folder}, where {gigabytes(free)} are "
            f"free; make room there, or choose a smaller model"
        )
