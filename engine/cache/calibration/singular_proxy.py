"""Singular proxies: V projected on the strongest directions of its weight (arXiv 2602.02544).

With W = U S R^T the V projection, a row x has the proxy S_r R_r^T x, computed here as U_r^T W x.
U is orthonormal, so at full rank the cosine of two proxies is that of the values. For a projection
with a bias b this holds if U_r^T b is added.
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from pathlib import Path

import safetensors.torch
import torch
import torch.nn.functional as F
from safetensors import SafetensorError
from torch import Tensor

from engine.cache.base import PolicyContext
from engine.core.files import cache_path, write_atomically
from engine.models.base import ModelAdapter

KEPT = "singular proxies"
MOST_KEPT = 2  # ranks in memory: one of each lane of a race
MOST_FILES = 4  # ranks in the user's cache


@dataclass(frozen=True)
class Proxy:
    """A layer's proxy: `weight` [rank, D] and `bias` [rank], None if V has no bias."""

    weight: Tensor
    bias: Tensor | None = None

    def __call__(self, x: Tensor, biased: bool) -> Tensor:
        """[B, n, D] normed rows -> [B, n, rank]; `biased` adds the bias."""
        return F.linear(x, self.weight, self.bias if biased else None)

    def like(self, x: Tensor) -> Proxy:
        """The proxy in the number format and on the device of `x`."""
        return Proxy(self.weight.to(x), None if self.bias is None else self.bias.to(x))


def compute_proxy(adapter: ModelAdapter, layer: int, rank: int) -> Proxy:
    """The proxy of a layer, in at least float32."""
    weight, bias = adapter.value_weight(layer)
    kept = torch.float64 if weight.dtype == torch.float64 else torch.float32
    weight = weight.double()
    basis = torch.linalg.eigh(weight @ weight.T).eigenvectors.flip(1)[:, :rank].T
    return Proxy(
        (basis @ weight).to(kept), None if bias is None else (basis @ bias.double()).to(kept)
    )


def load_or_compute(context: PolicyContext, rank: int) -> tuple[Proxy, ...]:
    """The proxies of all layers: from an earlier run, from the user's cache, or computed.

    Computed proxies are written to the user's cache if possible. A file that is damaged or has
    other shapes counts as missing; without a digest no files are used. The proxies of the last
    MOST_KEPT ranks stay in memory, the last MOST_FILES written ones in the user's cache.
    """
    adapter = context.adapter
    kept: dict[int, tuple[Proxy, ...]] = context.kept.setdefault(KEPT, {})
    if rank not in kept:
        name = f"singular-r{rank}-{str(adapter.dtype).removeprefix('torch.')}.safetensors"
        kept[rank] = tuple(p.like(adapter.norm.weight) for p in _from_disk(context, rank, name))
    found = kept[rank] = kept.pop(rank)  # the last one is the last used
    for old in list(kept)[:-MOST_KEPT]:
        del kept[old]
    return found


def _from_disk(context: PolicyContext, rank: int, name: str) -> list[Proxy]:
    path = cache_path(context.digest, name) if context.digest else None
    found = _load(path, context.adapter, rank) if path else None
    if found is not None:
        return found
    layers = range(context.adapter.info.layers)
    computed = [compute_proxy(context.adapter, layer, rank) for layer in layers]
    if path:
        with contextlib.suppress(OSError):
            write_atomically(path, _packed(computed))
            _drop_old_files(path.parent)
    return computed


def _drop_old_files(folder: Path) -> None:
    files = sorted(folder.glob("singular-r*.safetensors"), key=lambda one: one.stat().st_mtime_ns)
    for old in files[:-MOST_FILES]:
        old.unlink()


def _packed(proxies: list[Proxy]) -> bytes:
    biases = [p.bias.cpu() for p in proxies if p.bias is not None]  # layers may be on several GPUs
    tensors = {"weight": torch.stack([p.weight.cpu() for p in proxies])}
    return safetensors.torch.save(tensors | ({"bias": torch.stack(biases)} if biases else {}))


def _load(path: Path, adapter: ModelAdapter, rank: int) -> list[Proxy] | None:
    try:
        data = safetensors.torch.load(path.read_bytes())
    except (OSError, SafetensorError):
        return None
    info = adapter.info
    shapes: dict[str, tuple[int, ...]] = {"weight": (info.layers, rank, info.d_model)}
    if info.qkv_bias:
        shapes["bias"] = (info.layers, rank)
    if {name: tuple(t.shape) for name, t in data.items()} != shapes:
        return None
    biases = data["bias"] if info.qkv_bias else [None] * info.layers
    return [Proxy(w, b) for w, b in zip(data["weight"], biases, strict=True)]
