"""Feed-forward networks of a layer: dense, or a router and experts.

`feed_forward` makes that of a layer. Each is a module from normed rows [..., D] to [..., D], and a
row's result does not depend on the other rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from engine.models.kernels.choice import Kernels
from engine.models.kernels.linear import FusedLinear, SwiGLU, chosen_routine, linear, swiglu
from engine.models.ops import upcast

EPSILON = 1e-20  # added to the sum of sigmoid scores before they are divided by it


@dataclass(frozen=True)
class ExpertsInfo:
    """The experts of a model, and the rule by which rows are routed to them.

    Every row uses `active` of the `count` experts, of inner width `ffn`, and in addition a shared
    expert of inner width `shared_ffn` (0: there is none). The first `dense_layers` layers have no
    experts. `router` is "softmax" (SoftmaxRouter) or "sigmoid" (SigmoidRouter), which alone uses
    `groups`, `active_groups` and `scale`.
    """

    count: int
    active: int
    ffn: int
    shared_ffn: int = 0
    dense_layers: int = 0
    router: Literal["softmax", "sigmoid"] = "softmax"
    groups: int = 1
    active_groups: int = 1
    scale: float = 1.0

    @property
    def active_ffn(self) -> int:
        """Inner width of all experts that a row uses, the shared one included."""
        return self.active * self.ffn + self.shared_ffn

    @property
    def stored_ffn(self) -> int:
        """Inner width of all experts, the shared one included."""
        return self.count * self.ffn + self.shared_ffn

    def used(self, rows: int) -> int:
        """The most experts, without the shared one, that a call of so many rows can use."""
        return min(self.count, self.active * rows)


class Routing(NamedTuple):
    """The experts of rows: `ids` [n, k] int64, the best first, and their `weights` [n, k]."""

    ids: Tensor
    weights: Tensor


class SoftmaxRouter(nn.Module):
    """The k experts with the largest softmax probabilities, which are their weights.

    The probabilities are over all experts and are not renormalised, so that a row's weights sum to
    less than 1 (LLaDA-MoE). Computed at least in float32.
    """

    def __init__(self, d_model: int, experts: ExpertsInfo) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(experts.count, d_model))
        self.experts = experts

    def logits(self, rows: Tensor) -> Tensor:
        """Scores [n, E] of rows [n, D], before the softmax or sigmoid."""
        return F.linear(upcast(rows), upcast(self.weight))

    def forward(self, rows: Tensor) -> Routing:
        """The routing of rows [n, D]."""
        weights, ids = self.logits(rows).softmax(-1).topk(self.experts.active, -1)
        return Routing(ids, weights)


class SigmoidRouter(SoftmaxRouter):
    """Experts chosen within groups by biased sigmoid scores (LLaDA2.0, after DeepSeek-V3).

    `bias` is added to the scores for the choice only. A group's score is the sum of its two best
    biased scores; the k best experts of the `active_groups` best groups are chosen. Their weights
    are the unbiased scores, divided by their sum and multiplied by `scale`.
    """

    def __init__(self, d_model: int, experts: ExpertsInfo) -> None:
        super().__init__(d_model, experts)
        self.bias = nn.Parameter(torch.empty(experts.count))

    def forward(self, rows: Tensor) -> Routing:
        """The routing of rows [n, D]."""
        scores, given = self.logits(rows).sigmoid(), self.experts
        by_group = (scores + self.bias).unflatten(-1, (given.groups, -1))  # [n, groups, E / groups]
        group_scores = by_group.topk(2, -1).values.sum(-1)
        kept = group_scores.topk(given.active_groups, -1).indices
        closed = torch.ones_like(group_scores, dtype=torch.bool).scatter_(-1, kept, False)
        ranked = by_group.masked_fill(closed[..., None], -torch.inf).flatten(-2)
        ids = ranked.topk(given.active, -1).indices
        weights = scores.gather(-1, ids)
        return Routing(ids, weights / (weights.sum(-1, keepdim=True) + EPSILON) * given.scale)


ROUTERS = {"softmax": SoftmaxRouter, "sigmoid": SigmoidRouter}


class ExpertLinear(nn.Module):
    """A projection of each expert: `weight` [experts, d_out, d_in]."""

    def __init__(self, experts: int, d_in: int, d_out: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(experts, d_out, d_in))
        self.kernels = Kernels()

    def forward(self, rows: Tensor, counts: Sequence[int]) -> Tensor:
        """Rows [n, d_in] in the order of their experts, `counts[e]` of expert e -> [n, d_out]."""
        parts = zip(self.weight, rows.split(list(counts)), strict=True)
        found = [self.project(part, weight) for weight, part in parts if len(part)]
        return torch.cat(found) if found else rows.new_empty(0, self.weight.shape[1])

    def project(self, rows: Tensor, weight: Tensor) -> Tensor:
        """Rows [n, d_in] of one expert with the weight [d_out, d_in] -> [n, d_out]."""
        return linear(rows, weight, chosen_routine(self.kernels, "linear", rows, len(weight)))


class ExpertSwiGLU(ExpertLinear):
    """Gate and up projections of each expert: `weight` [experts, 2 d_out, d_in]."""

    def __init__(self, experts: int, d_in: int, d_out: int) -> None:
        super().__init__(experts, d_in, 2 * d_out)

    def project(self, rows: Tensor, weight: Tensor) -> Tensor:
        """SiLU(gate(rows)) * up(rows), [n, d_in] -> [n, d_out]."""
        routine = chosen_routine(self.kernels, "gated", rows, len(weight) // 2)
        return swiglu(rows, weight, routine, self.kernels)


class DenseFeedForward(nn.Module):
    """Gated feed-forward network: down(SiLU(gate(x)) * up(x))."""

    def __init__(self, d_model: int, ffn: int) -> None:
        super().__init__()
        self.gate_up = SwiGLU(d_model, ffn)
        self.down = FusedLinear(ffn, d_model)

    def forward(self, x: Tensor) -> Tensor:
        """[..., D] -> [..., D]."""
        out: Tensor = self.down(self.gate_up(x))
        return out


class MixtureOfExperts(nn.Module):
    """A router, experts and maybe a shared expert, all gated feed-forward networks.

    The rows of each expert are gathered and computed together. The number of rows of each expert is
    read on the host, so a forward through this module cannot be captured.
    """

    def __init__(self, d_model: int, experts: ExpertsInfo) -> None:
        super().__init__()
        self.experts = experts
        self.router = ROUTERS[experts.router](d_model, experts)
        self.gate_up = ExpertSwiGLU(experts.count, d_model, experts.ffn)
        self.down = ExpertLinear(experts.count, experts.ffn, d_model)
        self.shared = DenseFeedForward(d_model, experts.shared_ffn) if experts.shared_ffn else None

    def forward(self, x: Tensor) -> Tensor:
        """[..., D] -> [..., D]."""
        return self.forward_with_experts(x)[0]

    def forward_with_experts(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """`forward`, and the experts of each row [..., k] int64, the best first."""
        rows, active = x.reshape(-1, x.shape[-1]), self.experts.active
        ids, weights = self.router(rows)
        chosen = ids.flatten()
        order = chosen.argsort(stable=True)
        counts = torch.bincount(chosen, minlength=self.experts.count).tolist()
        gathered = rows.index_select(0, order.div(active, rounding_mode="floor"))
        found = self.down(self.gate_up(gathered, counts), counts)
        parts = torch.empty_like(found).index_copy_(0, order, found).view(-1, active, x.shape[-1])
        out = (parts * weights.to(parts.dtype)[..., None]).sum(1)
        if self.shared is not None:
            out += self.shared(rows)
        return out.view(x.shape), ids.view(*x.shape[:-1], active)


def feed_forward(
    d_model: int, ffn: int, experts: ExpertsInfo | None
) -> DenseFeedForward | MixtureOfExperts:
    """The feed-forward network of a layer; dense, with the inner width `ffn`, without experts."""
    return DenseFeedForward(d_model, ffn) if experts is None else MixtureOfExperts(d_model, experts)
