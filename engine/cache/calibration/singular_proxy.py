"""Singular proxies: V projected on the strongest directions of its weight (arXiv 2602.02544).

With W = U S R^T the V projection, a row x has the proxy S_r R_r^T x, computed here as U_r^T W x.
U is orthonormal, so at full rank the cosine of two proxies is that of the values. For a projection
with a bias b this holds if U_r^T b is added.
"""

from __future__ import annotations

import contextlib
import time
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

KEPT, UNFINISHED = "singular proxies", "singular proxies of the first layers"
LONG = 1.0  # seconds of a layer after which the layers so far are written and reported
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

    Computed proxies are written to the user's cache if possible, those of a large model after each
    layer. A file that is damaged or has other shapes counts as missing; without a digest no files
    are used. The proxies of the last MOST_KEPT ranks stay in memory, the last MOST_FILES written
    ones in the user's cache.
    """
    kept: dict[int, tuple[Proxy, ...]] = context.kept.setdefault(KEPT, {})
    if rank not in kept:
        like = context.adapter.norm.weight
        kept[rank] = tuple(p.like(like) for p in _of_all_layers(context, rank))
    found = kept[rank] = kept.pop(rank)  # the last one is the last used
    for old in list(kept)[:-MOST_KEPT]:
        del kept[old]
    return found


def _of_all_layers(context: PolicyContext, rank: int) -> list[Proxy]:
    adapter, layers = context.adapter, context.adapter.info.layers
    name = f"singular-r{rank}-{str(adapter.dtype).removeprefix('torch.')}.safetensors"
    path = cache_path(context.digest, name) if context.digest else None
    begun: dict[int, list[Proxy]] = context.kept.setdefault(UNFINISHED, {})
    if rank not in begun:
        begun[rank] = _load(path, adapter, rank) if path else []
    found = begun[rank]
    while len(found) < layers:
        start = time.monotonic()
        found.append(compute_proxy(adapter, len(found), rank))
        long = time.monotonic() - start > LONG
        if path and (long or len(found) == layers):
            _write(path, found)
        if long and len(found) < layers:
            context.report(len(found), layers)
    return begun.pop(rank)


def _write(path: Path, proxies: list[Proxy]) -> None:
    with contextlib.suppress(OSError):
        write_atomically(path, _packed(proxies))
        _drop_old_files(path.parent)


def _drop_old_files(folder: Path) -> None:
    files = sorted(folder.glob("singular-r*.safetensors"), key=lambda one: one.stat().st_mtime_ns)
    for old in files[:-MOST_FILES]:
        old.unlink()


def _packed(proxies: list[Proxy]) -> bytes:
    biases = [p.bias.cpu() for p in proxies if p.bias is not None]  # layers may be on several GPUs
    tensors = {"weight": torch.stack([p.weight.cpu() for p in proxies])}
    return safetensors.torch.save(tensors | ({"bias": torch.stack(biases)} if biases else {}))


def _load(path: Path, adapter: ModelAdapter, rank: int) -> list[Proxy]:
    """The proxies of a file: of the first layers, or of all."""
    try:
        data = safetensors.torch.load(path.read_bytes())
    except (OSError, SafetensorError):
        return []
    info = adapter.info
    shapes: dict[str, tuple[int, ...]] = {"weight": (rank, info.d_model)}
    if info.qkv_bias:
        shapes["bias"] = (rank,)
    if {name: tuple(t.shape[1:]) for name, t in data.items()} != shapes:
        return []
    layers = {len(t) for t in data.values()}
    if len(layers) > 1 or max(layers) > info.layers:
        return []
    biases = data["bias"] if info.qkv_bias else [None] * max(layers)
    return [Proxy(w, b) for w, b in zip(data["weight"], biases, strict=True)]
