"""Pretrained: an adapter that reads the checkpoints of its family."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import torch
from accelerate import init_empty_weights

from engine.models.base import ModelAdapter, ModelInfo
from engine.models.layout import Layout
from engine.models.weights import Checkpoint, read_json


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
    def from_checkpoint(
        cls,
        checkpoint: Checkpoint,
        dtype: torch.dtype,
        device: torch.device,
        stop_ids: tuple[int, ...] = (),
    ) -> Pretrained:
        """Read a checkpoint; CheckpointError names what is missing or does not fit."""
        config = read_json(checkpoint.folder / "config.json")
        info = cls.read_info(config, stop_ids)
        layout = next((x for x in cls.layouts if x.embedding in checkpoint.shapes), cls.layouts[0])
        checkpoint.check(layout.expected(info, cls.embedding_rows(config, info)))
        with init_empty_weights():
            adapter = cls(info)
        for target, names in layout.sources(info).items():
            parts = [checkpoint.load(name, dtype, device) for name in names]
            tensor = torch.cat(parts) if len(parts) > 1 else parts[0]
            if target in ("embedding.weight", "head.weight") and len(tensor) > info.vocab_size:
                tensor = tensor[: info.vocab_size].clone()
            module, _, leaf = target.rpartition(".")
            adapter.get_submodule(module).register_parameter(
                leaf, torch.nn.Parameter(tensor, requires_grad=False)
            )
        if info.tied:
            adapter.head.weight = adapter.embedding.weight
        return adapter.eval()
