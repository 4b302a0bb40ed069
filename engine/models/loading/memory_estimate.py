"""estimate: the memory of a model and its runs, and what is free, before anything is loaded."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Protocol

import psutil
import torch

from engine.models.base import ModelInfo

HEADROOM = 20  # one part in so many of the weights goes to allocators and to chunks on their way
CGROUP = Path("/sys/fs/cgroup")
NARROWER = (torch.float32, torch.bfloat16)


class MemoryShort(ValueError):
    """A model does not fit; the message names `model` and the remedies that would work."""


class StoredSite(Protocol):
    """An activation that a run keeps in every layer, from position `start` on."""

    @property
    def name(self) -> str:
        """`k` and `v` are as wide as the model's keys."""

    @property
    def width(self) -> int | None:
        """Numbers a position; None: the model's width."""

    @property
    def start(self) -> int:
        """First position kept."""


def block_parameters(info: ModelInfo) -> int:
    """Numbers in the weights of one layer."""
    d, fused = info.d_model, info.d_model + 2 * info.d_kv
    return 2 * d + d * fused + info.qkv_bias * fused + d * d + 3 * d * info.ffn


def parameters(info: ModelInfo) -> int:
    """Numbers in a model's weights, spare rows of an embedding left out."""
    tables = info.vocab_size * info.d_model * (1 if info.tied else 2)
    return info.layers * block_parameters(info) + info.d_model + tables


def weights_bytes(info: ModelInfo, dtype: torch.dtype) -> int:
    """Bytes of a model's weights in a number format."""
    return parameters(info) * dtype.itemsize


def largest_bytes(info: ModelInfo, dtype: torch.dtype) -> int:
    """Bytes of the largest layer, of which the embedding and the head are two."""
    return max(block_parameters(info), info.vocab_size * info.d_model) * dtype.itemsize


def store_bytes(
    info: ModelInfo, dtype: torch.dtype, length: int, batch: int, sites: Iterable[StoredSite]
) -> int:
    """Bytes of the activations that a run of `length` positions keeps."""
    total = 0
    for site in sites:
        width = info.d_kv if site.name in ("k", "v") else site.width or info.d_model
        total += batch * (length - site.start) * width * info.layers
    return total * dtype.itemsize


def run_bytes(
    info: ModelInfo,
    dtype: torch.dtype,
    length: int,
    batch: int = 1,
    sites: Iterable[StoredSite] = (),
    rows: int | None = None,
) -> int:
    """Most bytes beside the weights that a run over `length` positions takes at a time.

    That is what `sites` keep, and the larger of a layer's working set and the logits of `rows`
    positions (None: all) with what they are sampled by, in float64.
    """
    wide = max(dtype.itemsize, 4)
    held = (8 * info.d_model + 2 * info.d_kv) * dtype.itemsize  # streams, norm, q, k, v, branch
    rotated = 3 * info.d_model * wide
    feed = (2 * info.d_model + 4 * info.ffn) * dtype.itemsize
    layer = batch * length * (held + max(rotated, feed))
    decided = length if rows is None else rows
    logits = batch * decided * info.vocab_size * (dtype.itemsize + 3 * 8)
    return store_bytes(info, dtype, length, batch, sites) + max(layer, logits)


def free_bytes() -> dict[str, int]:
    """Bytes that each GPU ("cuda:0", ...) and the host ("cpu") have free.

    A bound on the container's memory counts where there is one.
    """
    gpus = {f"cuda:{i}": torch.cuda.mem_get_info(i)[0] for i in range(torch.cuda.device_count())}
    return gpus | {"cpu": min(psutil.virtual_memory().available, contained(CGROUP))}


def contained(group: Path) -> int:
    """Bytes that a control group (version 2) leaves free; without a bound the largest number."""
    try:
        limit = int((group / "memory.max").read_text("ascii"))
        used = int((group / "memory.current").read_text("ascii"))
        lines = (group / "memory.stat").read_text("ascii").splitlines()
        cached = next(int(x.split()[1]) for x in lines if x.startswith("inactive_file "))
    except (OSError, ValueError, StopIteration):
        return sys.maxsize
    return max(limit - used + cached, 0)


def needed_bytes(info: ModelInfo, dtype: torch.dtype, device: str, spare: int = 0) -> int:
    """Bytes that must be free on a device; for "auto" those of its main device.

    `spare` are those of a run. With "auto" other devices and the disk may hold the weights, and
    the main one must take a layer at a time.
    """
    held = largest_bytes(info, dtype) if device == "auto" else weights_bytes(info, dtype)
    return held + held // HEADROOM + spare


def fits(
    info: ModelInfo,
    dtype: torch.dtype,
    device: str,
    spare: int = 0,
    free: Mapping[str, int] | None = None,
) -> bool:
    """Whether a model can be loaded to a device with `spare` bytes left for its runs.

    ValueError names `device` where there is no such device; `free` stands in for `free_bytes()`.
    """
    free = free_bytes() if free is None else free
    return needed_bytes(info, dtype, device, spare) <= free[main_of(device, free)]


def check_fits(
    info: ModelInfo,
    dtype: torch.dtype,
    device: str,
    spare: int = 0,
    free: Mapping[str, int] | None = None,
) -> None:
    """Raise MemoryShort, saying what is needed, what there is and what would help; see `fits`."""
    free = free_bytes() if free is None else free
    if fits(info, dtype, device, spare, free):
        return
    main, short = main_of(device, free), str(dtype).removeprefix("torch.")
    raise MemoryShort(
        f"model: its {parameters(info) / 1e9:.2f} billion numbers at {short} and the run need "
        f"{gigabytes(needed_bytes(info, dtype, device, spare))} on {main}, where "
        f"{gigabytes(free[main])} are free; {_remedies(info, dtype, device, spare, free)}"
    )


def main_of(device: str, free: Mapping[str, int]) -> str:
    """The device of `free` that `device` stands for: of "auto" the first GPU, else the host.

    ValueError names `device` where it is not there.
    """
    gpus = [name for name in free if name.startswith("cuda")]
    names = {"cuda": gpus[0]} if gpus else {}
    name = (names | {"auto": (gpus or ["cpu"])[0]}).get(device, device)
    if name not in free:
        raise ValueError(
            f"device: {device!r} is not available; choose from {', '.join([*free, 'auto'])}"
        )
    return name


def gigabytes(count: int) -> str:
    """Bytes for people."""
    return f"{count / 1e9:.1f} GB" if count >= 1e8 else f"{count / 1e6:.1f} MB"


def _remedies(
    info: ModelInfo, dtype: torch.dtype, device: str, spare: int, free: Mapping[str, int]
) -> str:
    """What would make the model fit, of what there is."""
    found = []
    for other in NARROWER:
        if other.itemsize < dtype.itemsize and fits(info, other, device, spare, free):
            found.append(f"set dtype to {str(other).removeprefix('torch.')}")
            break
    main = main_of(device, free)
    places = [n for n in (*free, "auto") if n != main and fits(info, dtype, n, spare, free)]
    if places and device != "auto":
        found.append(f"set device to {places[0]}")
    if spare and fits(info, dtype, device, 0, free):
        found.append("shorten the prompt and the answer")
    return ", or ".join([*found, "choose a smaller model"])
