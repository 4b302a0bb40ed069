"""Memory that a model and its runs need, and memory that is free, before anything is loaded."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Protocol

import psutil
import torch

from engine.config.spec import AUTO_DTYPE, RunSpec
from engine.models.base import ModelInfo

HEADROOM = 20  # 1/20 of the weights is added for allocators and for pieces being read
CGROUP = Path("/sys/fs/cgroup")
SMALLER_DTYPES = (torch.float32, torch.bfloat16)


class InsufficientMemoryError(ValueError):
    """A model does not fit; the message names `model` and the remedies that would work."""


def dtype_of(spec: RunSpec) -> torch.dtype:
    """The number format of a spec. Raises ValueError naming `dtype` if it is `auto`."""
    if spec.dtype == AUTO_DTYPE:
        raise ValueError(
            "dtype: auto is chosen for runs, races and batches; name the format here, for example "
            "float32"
        )
    dtype = getattr(torch, spec.dtype)
    assert isinstance(dtype, torch.dtype)
    return dtype


class StoredSite(Protocol):
    """An activation that a run stores in every layer, from position `start` on."""

    @property
    def name(self) -> str:
        """Name of the site; `k` and `v` have the width of the model's keys."""

    @property
    def width(self) -> int | None:
        """Values per position; None: the model's width."""

    @property
    def start(self) -> int:
        """First position stored."""


def block_parameters(info: ModelInfo, layer: int, active: bool = False) -> int:
    """Parameters of a layer; `active`: only those that a single row uses."""
    d, fused = info.d_model, info.d_q + 2 * info.d_kv
    norms = 2 * d + info.qk_norm * 2 * info.head_dim
    attention = norms + d * fused + info.qkv_bias * fused + info.d_q * d
    return attention + _feed_forward_parameters(info, layer, active)


def _feed_forward_parameters(info: ModelInfo, layer: int, active: bool) -> int:
    """Parameters of a layer's feed-forward network, or of its router and experts."""
    experts = info.experts_of(layer)
    if experts is None:
        return 3 * info.d_model * info.ffn
    router = experts.count * (info.d_model + (experts.router == "sigmoid"))
    return router + 3 * info.d_model * (experts.active_ffn if active else experts.stored_ffn)


def parameters(info: ModelInfo) -> int:
    """Parameters of a model, without embedding rows beyond the vocabulary."""
    tables = info.vocab_size * info.d_model * (1 if info.tied else 2)
    layers = sum(block_parameters(info, layer) for layer in range(info.layers))
    return layers + info.d_model + tables


def active_parameters(info: ModelInfo) -> int:
    """Parameters in the products of a single row: of the experts, only those that it uses.

    An embedding that is not the head too is not counted: a row reads one of its rows.
    """
    layers = sum(block_parameters(info, layer, active=True) for layer in range(info.layers))
    return layers + info.d_model + info.vocab_size * info.d_model


def parameters_in_words(info: ModelInfo) -> str:
    """Stored parameters and, of a model with experts, how many of them a token uses."""
    words = f"{parameters(info) / 1e9:.2f} billion parameters"
    if info.experts is None:
        return words
    return f"{words} ({active_parameters(info) / 1e9:.2f} billion active for a token)"


def weights_bytes(info: ModelInfo, dtype: torch.dtype) -> int:
    """Bytes of a model's weights in a dtype."""
    return parameters(info) * dtype.itemsize


def largest_layer_bytes(info: ModelInfo, dtype: torch.dtype) -> int:
    """Bytes of the largest of the layers, the embedding and the head."""
    layers = (block_parameters(info, layer) for layer in range(info.layers))
    return max(*layers, info.vocab_size * info.d_model) * dtype.itemsize


def store_bytes(
    info: ModelInfo, dtype: torch.dtype, length: int, batch: int, sites: Iterable[StoredSite]
) -> int:
    """Bytes of the activations that a run of `length` positions stores."""
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
    """Peak bytes of a run over `length` positions, without the weights.

    The stored `sites`, and the larger of a layer's activations and the logits of `rows` positions
    (None: all) with the float64 buffers that they are sampled from.
    """
    wide = max(dtype.itemsize, 4)
    streams = 6 * info.d_model + 2 * info.d_q + 2 * info.d_kv  # with norm, q, k, v, branch
    held, rotated = streams * dtype.itemsize, 3 * info.d_q * wide
    feed = (2 * info.d_model + 4 * info.ffn) * dtype.itemsize
    if (experts := info.experts) is not None:  # rows gathered by expert, their results, the shared
        gathered = experts.active * (4 * info.d_model + 4 * experts.ffn) + 4 * experts.shared_ffn
        feed = max(feed, (2 * info.d_model + gathered) * dtype.itemsize)
    layer = batch * length * (held + max(rotated, feed))
    logit_rows = length if rows is None else rows
    logits = batch * logit_rows * info.vocab_size * (dtype.itemsize + 3 * 8)
    return store_bytes(info, dtype, length, batch, sites) + max(layer, logits)


def free_bytes() -> dict[str, int]:
    """Free bytes of each GPU ("cuda:0", ...) and of the host ("cpu").

    What torch's allocator keeps on a GPU and does not use counts as free. The host's value respects
    the memory limit of the container, if any.
    """
    gpus = {f"cuda:{i}": _gpu_free_bytes(i) for i in range(torch.cuda.device_count())}
    return gpus | {"cpu": min(psutil.virtual_memory().available, cgroup_free_bytes(CGROUP))}


def _gpu_free_bytes(gpu: int) -> int:
    """Free bytes of a GPU, with those that torch's allocator keeps in unused segments.

    The pools of captured forwards are counted too, though they stay until their run has ended.
    """
    free, stats = torch.cuda.mem_get_info(gpu)[0], torch.cuda.memory_stats(gpu)
    reserved, *used = (
        stats.get(f"{name}_bytes.all.current", 0)
        for name in ("reserved", "active", "inactive_split")
    )
    return free + reserved - sum(used)


def cgroup_free_bytes(group: Path) -> int:
    """Free bytes of a control group (version 2); sys.maxsize without a limit."""
    try:
        limit = int((group / "memory.max").read_text("ascii"))
        used = int((group / "memory.current").read_text("ascii"))
        lines = (group / "memory.stat").read_text("ascii").splitlines()
        cached = next(int(x.split()[1]) for x in lines if x.startswith("inactive_file "))
    except (OSError, ValueError, StopIteration):
        return sys.maxsize
    return max(limit - used + cached, 0)


def needed_bytes(info: ModelInfo, dtype: torch.dtype, device: str, spare: int = 0) -> int:
    """Bytes that must be free on a device; `spare` are those of a run.

    With "auto" the main device must hold one layer at a time; other devices and the disk may hold
    the weights.
    """
    held = largest_layer_bytes(info, dtype) if device == "auto" else weights_bytes(info, dtype)
    return held + held // HEADROOM + spare


def fits(
    info: ModelInfo,
    dtype: torch.dtype,
    device: str,
    spare: int = 0,
    free: Mapping[str, int] | None = None,
) -> bool:
    """Whether a model can be loaded to a device with `spare` bytes left for its runs.

    `free` replaces `free_bytes()`. Raises ValueError naming an unknown `device`.
    """
    free = free_bytes() if free is None else free
    return needed_bytes(info, dtype, device, spare) <= free[main_device(device, free)]


def check_fits(
    info: ModelInfo,
    dtype: torch.dtype,
    device: str,
    spare: int = 0,
    free: Mapping[str, int] | None = None,
) -> None:
    """Raise InsufficientMemoryError with needed bytes, free bytes and remedies; see `fits`."""
    free = free_bytes() if free is None else free
    if fits(info, dtype, device, spare, free):
        return
    main, name = main_device(device, free), str(dtype).removeprefix("torch.")
    raise InsufficientMemoryError(
        f"model: its {parameters_in_words(info)} at {name} and the run need "
        f"{gigabytes(needed_bytes(info, dtype, device, spare))} on {main}, where "
        f"{gigabytes(free[main])} are free; {_remedies(info, dtype, device, spare, free)}"
    )


def main_device(device: str, free: Mapping[str, int]) -> str:
    """The device of `free` that `device` means; for "auto" the first GPU, else the host.

    Raises ValueError naming an unknown `device`.
    """
    gpus = [name for name in free if name.startswith("cuda")]
    name = (gpus or ["cpu"])[0] if device == "auto" else device_key(device)
    if name not in free:
        raise ValueError(
            f"device: {device!r} is not available; choose from {', '.join([*free, 'auto'])}"
        )
    return name


def device_key(device: str) -> str:
    """The name of a spec's device in keys: `cuda` is the first GPU, as for `main_device`."""
    return "cuda:0" if device == "cuda" else device


def gigabytes(count: int) -> str:
    """Bytes as text, in GB or MB."""
    return f"{count / 1e9:.1f} GB" if count >= 1e8 else f"{count / 1e6:.1f} MB"


def _remedies(
    info: ModelInfo, dtype: torch.dtype, device: str, spare: int, free: Mapping[str, int]
) -> str:
    """The changes of a spec that would make the model fit."""
    found = []
    for other in SMALLER_DTYPES:
        if other.itemsize < dtype.itemsize and fits(info, other, device, spare, free):
            found.append(f"set dtype to {str(other).removeprefix('torch.')}")
            break
    main = main_device(device, free)
    places = [n for n in (*free, "auto") if n != main and fits(info, dtype, n, spare, free)]
    if places and device != "auto":
        found.append(f"set device to {places[0]}")
    if spare and fits(info, dtype, device, 0, free):
        found.append("shorten the prompt and the answer")
    return ", or ".join([*found, "choose a smaller model"])
