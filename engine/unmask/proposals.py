"""Proposals from logits: the token at each row, its probability and the score it is ranked by."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from engine.config.knobs import Scalar
from engine.core.device import HostCopy, upload
from engine.models.ops import wide
from engine.unmask.base import Candidates, Shaping

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
    shaping: Shaping | None = None,
    told: np.ndarray | None = None,
) -> Candidates:
    """Candidates of raw logits [B, n, V], of which `real` [B, n] bool are not padding.

    `told` is `real` on the host; where it is left out and noise is drawn, the device is asked.
    A `random` score is an order that the unmasker knows; the candidates keep their confidence.

    With a temperature the token is the argmax of logits + temperature * Gumbel noise, drawn in
    float64 (LLaDA, generate.py); the confidence stays that of the distribution as it is. With a
    `shaping` the token is drawn from the shaped distribution, and all is measured on that (Dream,
    generation_utils.py).
    """
    z = wide(logits)
    if shaping is not None:
        z, temperature = shaped(z, shaping, temperature), float(temperature > 0)
    ids = z.argmax(-1) if temperature == 0 else _sample(z, real, temperature, noise, told)
    probabilities = z.softmax(-1)
    confidence = probabilities.gather(-1, ids[..., None])[..., 0]
    values = _score(probabilities, confidence, score)
    if shaping is not None and shaping.alg_temp > 0:
        u = _uniform(real, 1, noise, told)[..., 0]
        values = values.double() / shaping.alg_temp + _gumbel(u)
    return Candidates(ids, confidence, values.masked_fill(~real, -torch.inf))


def shaped(z: Tensor, shaping: Shaping, temperature: float) -> Tensor:
    """Logits [B, n, V] at a temperature (0: as they are), cut to `top_p`, then to `top_k`.

    The token that crosses `top_p` stays, and so do those equal to the last of `top_k`.
    """
    if temperature > 0:
        z = z / temperature
    if shaping.top_p < 1:
        ordered, places = z.sort(dim=-1, descending=True, stable=True)
        out = ordered.softmax(-1).cumsum(-1) > shaping.top_p
        out = out.roll(1, -1)
        out[..., 0] = False
        z = z.masked_fill(torch.zeros_like(out).scatter(-1, places, out), -torch.inf)
    if 0 < shaping.top_k < z.shape[-1]:
        z = z.masked_fill(z < z.topk(shaping.top_k, -1).values[..., -1:], -torch.inf)
    return z


def _score(p: Tensor, confidence: Tensor, score: str) -> Tensor:
    if score == "margin":
        first, second = p.topk(2, -1).values.unbind(-1)
        return first - second
    if score == "entropy":
        return torch.special.xlogy(p, p).sum(-1)
    return confidence


def _sample(
    z: Tensor,
    real: Tensor,
    temperature: float,
    noise: Sequence[torch.Generator],
    told: np.ndarray | None,
) -> Tensor:
    u = _uniform(real, z.shape[-1], noise, told)
    return (z.double() + temperature * _gumbel(u)).argmax(-1)


def _gumbel(u: Tensor) -> Tensor:
    """Gumbel noise of uniform numbers."""
    return -(-u.clamp_min(1e-300).log()).log()


def _uniform(
    real: Tensor, width: int, noise: Sequence[torch.Generator], told: np.ndarray | None
) -> Tensor:
    """Uniform numbers [B, n, width] in float64, drawn for real rows only, in position order."""
    (told,) = (told,) if told is not None else HostCopy(real).get()
    out = torch.full((*real.shape, width), 0.5, dtype=torch.float64)
    for row, here, generator in zip(out, torch.from_numpy(told), noise, strict=True):
        shape = (int(here.sum()), width)
        row[here] = torch.rand(shape, dtype=torch.float64, generator=generator)
    return upload(out.numpy(), real.device)
