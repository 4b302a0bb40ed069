"""Certainty density: how many tokens around a position are known (d2Cache, arXiv 2509.23094)."""

from __future__ import annotations

import torch
from torch import Tensor


def density(known: Tensor, sigma: float) -> Tensor:
    """Gaussian density [B, G] float64, in 0 to 1, of the tokens `known` [B, G] bool of an answer.

    The kernel is exp(-d^2 / (2 sigma^2)), normalised over 3 G positions on either side. The answer
    is extended by its own length on both sides: to the left with known tokens, to the right with
    the state of its last position. Beyond about 38 sigma from every known token the density is 0 in
    float64, so that it does not order such positions.
    """
    size = known.shape[1]
    distance = torch.arange(-3 * size, 3 * size, device=known.device, dtype=torch.float64)
    kernel = (-distance.square() / (2 * sigma**2)).exp()
    windows = kernel.unfold(0, size, 1)
    inside = (known[:, None] * windows[2 * size + 1 : 3 * size + 1]).sum(-1).flip(1)
    beyond = windows[3 * size + 1 : 4 * size + 1].sum(-1)
    return (inside + beyond + known[:, -1:] * beyond.flip(0)) / kernel.sum()
