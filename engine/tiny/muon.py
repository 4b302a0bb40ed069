"""Muon: momentum whose matrix updates are made orthogonal; AdamW for everything else."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

_COEFFICIENTS = (3.4445, -4.7750, 2.0315)


def orthogonal(matrices: Tensor, rounds: int = 5) -> Tensor:
    """Push the singular values of `matrices` [N, r, c] towards 1 (Newton-Schulz, quintic)."""
    a, b, c = _COEFFICIENTS
    flip = matrices.shape[1] > matrices.shape[2]
    x = matrices.mT if flip else matrices
    x = x / (x.norm(dim=(1, 2), keepdim=True) + 1e-7)
    for _ in range(rounds):
        square = x @ x.mT
        x = a * x + (b * square + c * square @ square) @ x
    return x.mT if flip else x


class Muon(torch.optim.Optimizer):
    """Muon for parameters of two or three dimensions (the last two are the matrix)."""

    def __init__(self, parameters: list[nn.Parameter], lr: float, momentum: float = 0.95) -> None:
        super().__init__(parameters, {"lr": lr, "momentum": momentum})

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        """Update all parameters; those of one matrix shape are treated in one batch."""
        for group in self.param_groups:
            batches: dict[torch.Size, list[tuple[nn.Parameter, Tensor]]] = {}
            for p in group["params"]:
                if p.grad is None:
                    continue
                momentum = self.state[p].setdefault("momentum", torch.zeros_like(p))
                momentum.lerp_(p.grad, 1 - group["momentum"])
                update = p.grad.lerp(momentum, group["momentum"])
                batches.setdefault(p.shape[-2:], []).append((p, update.reshape(-1, *p.shape[-2:])))
            for size, batch in batches.items():
                moved = orthogonal(torch.cat([update for _, update in batch]))
                scale = group["lr"] * max(1.0, size[0] / size[1]) ** 0.5
                parts = moved.split([update.shape[0] for _, update in batch])
                for (p, _), part in zip(batch, parts, strict=True):
                    p.add_(part.reshape(p.shape), alpha=-scale)


def optimizers(model: nn.Module, lr: float, matrix_lr: float) -> list[torch.optim.Optimizer]:
    """Muon for the blocks' matrices, AdamW for embedding, head and norms."""
    matrices = [p for name, p in model.named_parameters() if "blocks" in name and p.dim() > 1]
    known = {id(p) for p in matrices}
    rest = [p for p in model.parameters() if id(p) not in known]
    return [
        Muon(matrices, matrix_lr),
        torch.optim.AdamW(rest, lr=lr, betas=(0.9, 0.95), weight_decay=0.0),
    ]
