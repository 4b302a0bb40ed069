"""Pretrained: an adapter that reads the checkpoints of its family."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from engine.core.progress import run_to_end
from engine.models.base import ModelAdapter, ModelInfo
from engine.models.loading.checkpoint import Checkpoint
from engine.models.loading.config import read_config
from engine.models.loading.layout import Layout
from engine.models.loading.placement import DISK, Offloaded, Placing, attach, holder, leaves


@dataclass(frozen=True)
class Progress:
    """How much of a checkpoint has been read, in bytes of its files."""

    done: int
    total: int


class Pretrained(ModelAdapter):
    """A family of published checkpoints; `layouts` are the sets of tensor names it accepts."""

    layouts: ClassVar[tuple[Layout, ...]]

    @classmethod
    def read_info(cls, config: Mapping[str, Any], stop_ids: tuple[int, ...] = ()) -> ModelInfo:
        """ModelInfo of a `config.json`; `stop_ids` are ids that end a text beside EOS.

        Raises CheckpointError naming a field that is missing or asks for what the family lacks.
        """
        raise NotImplementedError

    @classmethod
    def embedding_rows(cls, config: Mapping[str, Any], info: ModelInfo) -> int:
        """Rows of the checkpoint's embedding, at least those of the vocabulary."""
        return info.vocab_size

    @classmethod
    def load(
        cls,
        checkpoint: Checkpoint,
        dtype: torch.dtype,
        placing: Placing,
        stop_ids: tuple[int, ...] = (),
    ) -> Generator[Progress, None, Pretrained]:
        """Read a checkpoint piece by piece, each weight straight to its place; returns the adapter.

        Nothing is held twice: beside the weights there is one chunk on its way, and a tensor that
        goes to disk. Raises CheckpointError naming what is missing or does not fit, MemoryShort
        where the disk is full.
        """
        config = read_config(checkpoint.folder)
        info = cls.read_info(config, stop_ids)
        layout = next((x for x in cls.layouts if x.embedding in checkpoint.shapes), cls.layouts[0])
        checkpoint.check(layout.expected(info, cls.embedding_rows(config, info)), layout.skipped)
        with torch.device("meta"):
            adapter = cls(info)
        adapter.to(dtype)
        offloaded = Offloaded(placing.folder)
        places = {name: place for name, _, place in leaves(adapter, placing)}
        parts = {
            target: _parts(checkpoint, names, len(adapter.get_parameter(target)))
            for target, names in layout.sources(info).items()
        }
        done, total = 0, sum(checkpoint.nbytes(*part) for found in parts.values() for part in found)
        for target, found in parts.items():
            module, _, leaf = target.rpartition(".")
            like, place = adapter.get_parameter(target), places[module]
            if place == DISK and offloaded.stored(target, like):
                done += sum(checkpoint.nbytes(*part) for part in found)
                yield Progress(done, total)
                continue
            device = holder(place, placing.main)
            tensor = torch.empty_like(like, device=device or torch.device("cpu"))
            for count in _fill(checkpoint, found, tensor):
                done += count
                yield Progress(done, total)
            if device is not None:
                owner = adapter.get_submodule(module)
                owner.register_parameter(leaf, nn.Parameter(tensor, requires_grad=False))
            elif place == DISK:
                offloaded.write(target, tensor)
            else:
                offloaded.keep(target, tensor)
        if info.tied:
            adapter.head.weight = adapter.embedding.weight
        attach(adapter, placing, offloaded)
        return adapter.eval()

    @classmethod
    def from_checkpoint(
        cls,
        checkpoint: Checkpoint,
        dtype: torch.dtype,
        device: torch.device,
        stop_ids: tuple[int, ...] = (),
    ) -> Pretrained:
        """`load` to one device, without a word on the way."""
        return run_to_end(cls.load(checkpoint, dtype, Placing(device), stop_ids))


def _parts(checkpoint: Checkpoint, names: tuple[str, ...], rows: int) -> list[tuple[str, int]]:
    """Tensors that make up one of `rows` rows, with the rows taken of each: spare ones are left."""
    out = []
    for name in names:
        taken = min(checkpoint.shapes[name][0], rows)
        out.append((name, taken))
        rows -= taken
    return out


def _fill(checkpoint: Checkpoint, parts: list[tuple[str, int]], out: Tensor) -> Iterator[int]:
    """Fill `out` with tensors one below the other; yields the bytes read each time."""
    start = 0
    for name, rows in parts:
        for chunk in checkpoint.read(name, out.device, rows):
            out[start : start + len(chunk)].copy_(chunk)
            start += len(chunk)
            yield chunk.nbytes
