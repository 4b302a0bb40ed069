"""Rule: when a guider agrees to a token of a draft (FlashDLM, Algorithm 1 and appendix C.4)."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

RULES = ("top1", "topk", "rel", "rel_dlm")


@dataclass(frozen=True)
class Rule:
    """One of RULES for the guider's distribution p, a drafted token d and a model's p_f.

    `top1`: d is the likeliest. `topk`: d is among the `k` likeliest. `rel`: that, and
    p(d) >= tau max p (the release's topk_relative). `rel_dlm`: max p_f > tau max p, whatever d
    is, as the appendix has it, but on probabilities, since logits of two models do not compare.
    """

    name: str
    k: int
    tau: float

    def accepts(self, drafted: Tensor, log_p: Tensor, sure: Tensor) -> Tensor:
        """Flags [m] for tokens `drafted` [m] under `log_p` [m, V]; `sure` [m] is max p_f."""
        best = log_p.max(1).values
        if self.name == "rel_dlm":
            return sure.to(best) > self.tau * best.exp()
        order = rank(drafted, log_p)
        if self.name == "top1":
            return order == 0
        among = order < self.k
        if self.name == "topk":
            return among
        own = log_p.gather(1, drafted[:, None])[:, 0]
        return among & ((own - best).exp() >= self.tau)


def rank(drafted: Tensor, log_p: Tensor) -> Tensor:
    """Place [m] of each token in the order of its distribution, 0 is first; ties: lower id."""
    own = log_p.gather(1, drafted[:, None])
    ids = torch.arange(log_p.shape[1], device=log_p.device)
    return ((log_p > own) | ((log_p == own) & (ids < drafted[:, None]))).sum(1)
