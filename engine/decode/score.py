"""Proposals from logits: the token at each row, its probability and the score it is ranked by."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from engine.decode.base import Candidates
from engine.fields import Scalar
from engine.models.ops import wide

ALIASES: dict[str, Scalar] = {
    "low_confidence": "confidence",
    "maskgit_plus": "confidence",
    "topk_margin": "margin",
}


def propose(
    logits: Tensor,
    real: Tensor,
    score: str,
    temperature: float,
    noise: Sequence[torch.Generator],
) -> Candidates:
    """Candidates of raw logits [B, n, V], of which `real` [B, n] bool are not padding.

    A `random` score is an order that the unmasker knows; the candidates keep their confidence.

    With a temperature the token is the argmax of logits + temperature * Gumbel noise, drawn in
    float64 (LLaDA, generate.py); the confidence stays that of the distribution as it is.
    """
    z = wide(logits)
    ids = z.argmax(-1) if temperature == 0 else _sample(z, real, temperature, noise)
    probabilities = z.softmax(-1)
    confidence = probabilities.gather(-1, ids[..., None])[..., 0]
    values = _score(probabilities, confidence, score)
    return Candidates(ids, confidence, values.masked_fill(~real, -torch.inf))


def _score(p: Tensor, confidence: Tensor, score: str) -> Tensor:
    if score == "margin":
        first, second = p.topk(2, -1).values.unbind(-1)
        return first - second
    if score == "entropy":
        return torch.special.xlogy(p, p).sum(-1)
    return confidence


def _sample(
    z: Tensor, real: Tensor, temperature: float, noise: Sequence[torch.Generator]
) -> Tensor:
    u = _uniform(real, z.shape[-1], noise)
    return (z.double() - temperature * (-u.clamp_min(1e-300).log()).log()).argmax(-1)


def _uniform(real: Tensor, width: int, noise: Sequence[torch.Generator]) -> Tensor:
    """Uniform numbers [B, n, width] in float64, drawn for real rows only, in position order."""
    out = torch.full((*real.shape, width), 0.5, dtype=torch.float64)
    for i, (generator, count) in enumerate(zip(noise, real.sum(1).tolist(), strict=True)):
        out[i, :count] = torch.rand((count, width), dtype=torch.float64, generator=generator)
    return out.to(real.device)
