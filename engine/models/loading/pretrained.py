"""PretrainedAdapter: a model adapter that loads the published checkpoints of its family."""

from __future__ import annotations

import math
from collections.abc import Container, Generator, Iterator, Mapping
from dataclasses import replace
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from engine.core.progress import Progress, run_to_end
from engine.models.base import ModelAdapter, ModelInfo
from engine.models.loading.checkpoint import Checkpoint, CheckpointError
from engine.models.loading.config import read_config
from engine.models.loading.layout import Layout
from engine.models.loading.placement import (
    DISK,
    OffloadedWeights,
    Placement,
    attach_hooks,
    holding_device,
    weight_modules,
)

CPU = torch.device("cpu")
CHECKED_ROWS = 1024  # of a tied head that are compared at a time


class PretrainedAdapter(ModelAdapter):
    """The adapter of a family of checkpoints.

    `layouts` are the sets of tensor names it accepts. `template` is the family's chat template, if
    it is not the tokenizer's.
    """

    layouts: ClassVar[tuple[Layout, ...]]
    template: ClassVar[str] = ""

    @classmethod
    def read_info(cls, config: Mapping[str, Any], stop_ids: tuple[int, ...] = ()) -> ModelInfo:
        """ModelInfo of a `config.json`; `stop_ids` are ids that end a text besides EOS.

        Raises CheckpointError naming a field that is missing or has an unsupported value.
        """
        raise NotImplementedError

    @classmethod
    def embedding_rows(cls, config: Mapping[str, Any], info: ModelInfo) -> int:
        """Rows of the checkpoint's embedding, at least the size of the vocabulary."""
        return info.vocab_size

    @classmethod
    def find_layout(cls, names: Container[str], info: ModelInfo) -> Layout:
        """The layout of which a checkpoint with tensors of these names has the most."""
        if len(cls.layouts) == 1:
            return cls.layouts[0]

        def present(layout: Layout) -> int:
            return sum(name in names for name in layout.expected(info, 1))

        return max(cls.layouts, key=present)

    @classmethod
    def load(
        cls,
        checkpoint: Checkpoint,
        dtype: torch.dtype,
        placement: Placement,
        stop_ids: tuple[int, ...] = (),
        fill_id: int | None = None,
    ) -> Generator[Progress, None, PretrainedAdapter]:
        """Load a checkpoint, each weight directly to its device; the value is the adapter.

        `stop_ids` and `fill_id` are those of the tokenizer; without the latter, EOS fills. Peak
        memory is the weights, one piece of a tensor and one tensor that is written to disk. A head
        that is tied to the embedding may be stored as well, as a copy. Yields bytes of the files.
        Raises CheckpointError naming a missing or wrong tensor, InsufficientMemoryError if the disk
        is full.
        """
        config = read_config(checkpoint.folder)
        info = cls.read_info(config, stop_ids)
        if fill_id is not None:
            info = replace(info, fill_id=fill_id)
        layout = cls.find_layout(checkpoint.shapes, info)
        expected = layout.expected(info, cls.embedding_rows(config, info))
        if copied := info.tied and layout.head in checkpoint.shapes:
            expected[layout.head] = expected[layout.embedding]
        checkpoint.check(expected, layout.skipped)
        if copied:
            yield from _check_head(checkpoint, layout)
        with torch.device("meta"):
            adapter = cls(info)
        adapter.to(dtype)
        offloaded = OffloadedWeights(placement.folder)
        places = {name: place for name, _, place in weight_modules(adapter, placement)}
        parts = {
            target: _sources(checkpoint, names, adapter.get_parameter(target).shape)
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
            device = holding_device(place, placement.main)
            tensor = torch.empty(like.shape, dtype=like.dtype, device=device or CPU)
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
        attach_hooks(adapter, placement, offloaded)
        return adapter.eval()

    @classmethod
    def from_checkpoint(
        cls,
        checkpoint: Checkpoint,
        dtype: torch.dtype,
        device: torch.device,
        stop_ids: tuple[int, ...] = (),
        fill_id: int | None = None,
    ) -> PretrainedAdapter:
        """`load` to one device, without progress."""
        return run_to_end(cls.load(checkpoint, dtype, Placement(device), stop_ids, fill_id))


def _check_head(checkpoint: Checkpoint, layout: Layout) -> Generator[Progress, None, None]:
    """Check that the head that a checkpoint with tied weights stores is a copy of its embedding.

    Both are read, in pieces; their number formats may differ. Raises CheckpointError naming the
    head if it differs.
    """
    pieces = (
        checkpoint.read(name, CPU, step=CHECKED_ROWS) for name in (layout.head, layout.embedding)
    )
    for head, embedding in zip(*pieces, strict=True):
        if not torch.equal(head.to(embedding), embedding):
            raise CheckpointError(
                f"{layout.head}: differs from {layout.embedding}, but config.json ties the two; "
                "copy it and the weights from the same checkpoint, or untie them in config.json"
            )
        yield Progress(0, 0)


def _sources(
    checkpoint: Checkpoint, names: tuple[str, ...], shape: tuple[int, ...]
) -> list[tuple[str, int]]:
    """Names and rows to read of the tensors that make up a parameter of a shape."""
    out = []
    # On ZeroGPU a tensor's shape is a tuple without `numel`.
    rows = math.prod(shape[: _joined_dims(len(shape), len(checkpoint.shapes[names[0]]))])
    for name in names:
        taken = min(checkpoint.shapes[name][0], rows)
        out.append((name, taken))
        rows -= taken
    return out


def _fill(checkpoint: Checkpoint, parts: list[tuple[str, int]], out: Tensor) -> Iterator[int]:
    """Fill `out` with the concatenated tensors; yields the bytes of each piece.

    Matrices also fill a stack of matrices, row by row.
    """
    start = 0
    rows = out.flatten(0, _joined_dims(out.dim(), len(checkpoint.shapes[parts[0][0]])) - 1)
    for name, count in parts:
        for chunk in checkpoint.read(name, out.device, count):
            rows[start : start + len(chunk)].copy_(chunk)
            start += len(chunk)
            yield chunk.nbytes


def _joined_dims(ours: int, theirs: int) -> int:
    """First dimensions of a parameter that are one dimension of the tensors it is made from."""
    return ours - theirs + 1
