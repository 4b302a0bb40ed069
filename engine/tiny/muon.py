"""Muon with products in float32.

`torch.optim.Muon` orthogonalises in bfloat16. A processor without bfloat16 instructions takes 15
times as long for that as for float32: a third of a training step of the embedded models.
"""

from __future__ import annotations

import math
from collections import defaultdict
from typing import Any

import torch
from torch import Tensor

COEFFICIENTS = (3.4445, -4.7750, 2.0315)  # of the quintic iteration, as torch.optim.Muon
ITERATIONS = 5


def orthogonalised(matrices: Tensor) -> Tensor:
    """Matrices [N, A, B] with the same singular vectors and singular values near 1.

    Newton-Schulz iterations; all matrices of a stack are multiplied together.
    """
    tall = matrices.shape[1] > matrices.shape[2]
    x = matrices.mT if tall else matrices
    x = x / x.flatten(1).norm(dim=1).clamp(min=1e-7)[:, None, None]
    a, b, c = COEFFICIENTS
    for _ in range(ITERATIONS):
        gram = x @ x.mT
        x = a * x + (b * gram + c * gram @ gram) @ x
    return x.mT if tall else x


class Float32Muon(torch.optim.Muon):
    """`torch.optim.Muon` (Nesterov momentum, no weight decay) with another `step`.

    Its state is that of `torch.optim.Muon`: saved states of both can be exchanged.
    """

    @torch.no_grad()
    def step(self, closure: Any = None) -> Any:
        """Update all parameters; `closure` must be None."""
        if closure is not None:
            raise ValueError("closure: not supported")
        for group in self.param_groups:
            alike: dict[torch.Size, list[Tensor]] = defaultdict(list)
            for matrix in group["params"]:
                if matrix.grad is not None:
                    alike[matrix.shape].append(matrix)
            for shape, matrices in alike.items():
                updates = [self._momentum(one, group["momentum"]) for one in matrices]
                lr = group["lr"] * math.sqrt(max(1, shape[0] / shape[1]))
                for one, update in zip(matrices, orthogonalised(torch.stack(updates)), strict=True):
                    one.add_(update, alpha=-lr)

    def _momentum(self, matrix: Tensor, momentum: float) -> Tensor:
        """The gradient of a matrix after Nesterov momentum."""
        assert matrix.grad is not None
        state = self.state[matrix]
        if not state:
            state["momentum_buffer"] = torch.zeros_like(matrix)
        buffer = state["momentum_buffer"].lerp_(matrix.grad, 1 - momentum)
        return matrix.grad.lerp(buffer, momentum)
