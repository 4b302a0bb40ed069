"""Validation while a model trains: loss on problems that are neither exam nor training data."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import islice

import torch
import torch.nn.functional as F
from tokenizers import Tokenizer

from engine.tiny.batches import BatchStream
from engine.tiny.family import VALIDATION
from engine.tiny.training_inputs import Batch, Recipe

SEED, CHUNK, BATCHES, TOKENS = 77, 120, 3, 2500  # of each family


def loss_of(
    model: Callable[..., torch.Tensor], batch: Batch, causal: bool, dtype: torch.dtype
) -> tuple[torch.Tensor, torch.Tensor]:
    """The weighted mean loss and the share of targets with the highest logit."""
    canvas = (batch.ids, batch.positions, batch.rows, batch.mask)
    logits = model(*canvas, causal, dtype, batch.copies)
    each = F.cross_entropy(logits.float(), batch.targets, reduction="none")
    right = (logits.argmax(-1) == batch.targets).float().mean()
    return (each * batch.weights).sum() / batch.weights.sum(), right


class Validation:
    """Fixed batches of every family of a recipe: canvas states; causal or block-causal ones."""

    def __init__(self, tokenizer: Tokenizer, recipe: Recipe, family: str) -> None:
        self.causal = recipe.kind == "causal"
        self.batches: dict[str, list[Batch]] = {}
        for name, _ in recipe.families:
            own = replace(
                recipe, families=((name, 1.0),), sizes=(1.0, 1.0), few_shot=0.0, copies=0.0,
                tokens=TOKENS,
            )  # fmt: skip
            stream = BatchStream(tokenizer, own, family, SEED, VALIDATION, CHUNK)
            self.batches[name] = list(islice(stream.batches(), BATCHES))

    @torch.no_grad()
    def measure(
        self, model: Callable[..., torch.Tensor], device: str, dtype: torch.dtype
    ) -> dict[str, tuple[float, float]]:
        """Mean loss and share of right predictions by family."""
        found = {}
        for name, batches in self.batches.items():
            pairs = [loss_of(model, one.to(device), self.causal, dtype) for one in batches]
            losses, rights = zip(*pairs, strict=True)
            found[name] = (float(sum(losses)) / BATCHES, float(sum(rights)) / BATCHES)
        return found
