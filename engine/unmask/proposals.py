"""Proposals: the token at each row of logits, its probability and its score."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from engine.config.knobs import Scalar
from engine.core.device import HostCopy, upload
from engine.models.base import ModelInfo
from engine.models.ops import upcast
from engine.unmask.base import Candidates, SamplingParams

SCORE_ALIASES: dict[str, Scalar] = {
    "low_confidence": "confidence",
    "maskgit_plus": "confidence",
    "topk_margin": "margin",
}
LEAST_ALG_TEMP = 1e-300  # scores divided by less than this overflow


def propose(
    logits: Tensor,
    real: Tensor,
    score: str,
    temperature: float,
    noise: Sequence[torch.Generator],
    params: SamplingParams | None = None,
    real_host: np.ndarray | None = None,
    double: bool = False,
) -> Candidates:
    """Propose a token at each row of logits [B, n, V]; `real` [B, n] bool excludes padding rows.

    With a temperature, the token is the argmax of logits + temperature * Gumbel noise, drawn in
    float64 (LLaDA, generate.py); confidence and score are those of the distribution without it.
    With `params`, the token is drawn from the filtered distribution and measured on it (Dream,
    generation_utils.py). `noise` is the generator of each sequence. `real_host` is `real` on the
    host; if it is None and noise is drawn, `real` is copied from the device. The score `random`
    gives the confidence, since the order comes from `Unmasker.planned_order`. `double`: all
    probabilities are computed in float64, otherwise at least in float32.
    """
    z = logits.double() if double else upcast(logits)
    if params is not None:
        z, temperature = filter_logits(z, params, temperature), float(temperature > 0)
    if temperature == 0:
        ids = z.argmax(-1)
    else:
        u = _uniform(real, z.shape[-1], noise, real_host)
        ids = (z.double() + temperature * _gumbel(u)).argmax(-1)
    probabilities = z.softmax(-1)
    confidence = probabilities.gather(-1, ids[..., None])[..., 0]
    values = _score(probabilities, confidence, score)
    if params is not None and params.alg_temp > 0:
        u = _uniform(real, 1, noise, real_host)[..., 0]
        values = values.double() / max(params.alg_temp, LEAST_ALG_TEMP) + _gumbel(u)
    return Candidates(ids, confidence, values.masked_fill(~real, -torch.inf))


def exclude_non_text(logits: Tensor, info: ModelInfo) -> None:
    """Set logits [..., V] of the mask and, if the model is `text_only`, of non-text to -inf."""
    logits.select(-1, info.mask_id).fill_(-torch.inf)
    if info.text_only and info.text_size:
        logits[..., info.text_size :].fill_(-torch.inf)


def filter_logits(z: Tensor, params: SamplingParams, temperature: float) -> Tensor:
    """Temper logits [B, n, V] (0: unchanged), then apply `top_p` and `top_k`.

    The token that crosses `top_p` is kept, and so are ties with the last of `top_k`.
    """
    if temperature > 0:
        z = z / temperature
    if params.top_k_first:
        z = _top_k(z, params.top_k)
    if params.top_p < 1:
        ordered, places = z.sort(dim=-1, descending=True, stable=True)
        out = ordered.softmax(-1).cumsum(-1) > params.top_p
        out = out.roll(1, -1)
        out[..., 0] = False
        z = z.masked_fill(torch.zeros_like(out).scatter(-1, places, out), -torch.inf)
    return z if params.top_k_first else _top_k(z, params.top_k)


def _top_k(z: Tensor, count: int) -> Tensor:
    """The logits without those below the `count` largest; 0: all."""
    if not 0 < count < z.shape[-1]:
        return z
    return z.masked_fill(z < z.topk(count, -1).values[..., -1:], -torch.inf)


def _score(p: Tensor, confidence: Tensor, score: str) -> Tensor:
    if score == "margin":
        first, second = p.topk(2, -1).values.unbind(-1)
        return first - second
    if score == "entropy":
        return torch.special.xlogy(p, p).sum(-1)
    return confidence


def _gumbel(u: Tensor) -> Tensor:
    """Gumbel noise from uniform numbers."""
    return -(-u.clamp_min(1e-300).log()).log()


def _uniform(
    real: Tensor, width: int, noise: Sequence[torch.Generator], real_host: np.ndarray | None
) -> Tensor:
    """Uniform numbers [B, n, width] in float64, drawn for real rows only, in position order."""
    (real_host,) = (real_host,) if real_host is not None else HostCopy(real).get()
    out = torch.full((*real.shape, width), 0.5, dtype=torch.float64)
    for row, here, generator in zip(out, torch.from_numpy(real_host), noise, strict=True):
        shape = (int(here.sum()), width)
        row[here] = torch.rand(shape, dtype=torch.float64, generator=generator)
    return upload(out.numpy(), real.device)
