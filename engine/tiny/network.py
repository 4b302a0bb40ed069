"""The small transformer that is trained as embedded model, causal or bidirectional.

Pre-norm blocks with RMSNorm, rotary positions (halves concatenated), SiLU-gated MLP, no biases and
an untied head, so that it can be exported in the LLaDA and (with zero biases) the Qwen2 layout.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

CONSTANT = 1.5  # the component of every embedding from which heads take their positions
DISTANCES = ((-1, -2, 1), (-1, -3, 2))  # of the first heads of the first layers
FASTEST, SHARPNESS = 4, 2.8  # rotary frequencies used, root of the score that each adds


@dataclass(frozen=True)
class NetworkShape:
    """Sizes of the network; the defaults are those of the embedded models."""

    vocab: int = 1024
    width: int = 128
    layers: int = 8
    heads: int = 4
    hidden: int = 352
    context: int = 1024
    theta: float = 10000.0
    eps: float = 1e-6


class NetworkBlock(nn.Module):
    """Attention and MLP. Every matrix is a parameter of its own, as Muon requires."""

    def __init__(self, shape: NetworkShape) -> None:
        super().__init__()
        width, hidden = shape.width, shape.hidden
        self.heads, self.eps = shape.heads, shape.eps
        self.norm1 = nn.Parameter(torch.ones(width))
        self.norm2 = nn.Parameter(torch.ones(width))
        scale = width**-0.5
        small = scale / math.sqrt(2 * shape.layers)
        qkv = (torch.randn(3, width, width) * scale).unbind()
        self.q, self.k, self.v = (nn.Parameter(matrix.clone()) for matrix in qkv)
        self.out = nn.Parameter(torch.randn(width, width) * small)
        gate_up = (torch.randn(2, hidden, width) * scale).unbind()
        self.gate, self.up = (nn.Parameter(matrix.clone()) for matrix in gate_up)
        self.down = nn.Parameter(torch.randn(width, hidden) * small * math.sqrt(width / hidden))

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor, bias: Tensor | None) -> Tensor:
        """The block's output for `x` [B, T, D]; `bias` [B * H, T, T] is added to the scores."""
        batch, length, width = x.shape
        kind = x.dtype
        h = F.rms_norm(x, (width,), self.norm1.to(kind), self.eps)
        qkv = F.linear(h, torch.cat((self.q, self.k, self.v)).to(kind))
        qkv = qkv.view(batch, length, 3, self.heads, -1)
        qk = qkv[:, :, :2]
        a, b = qk.chunk(2, dim=-1)
        qk = qk * cos + torch.cat((-b, a), dim=-1) * sin
        heads = (batch * self.heads, length, width // self.heads)
        q, k, v = (
            t.transpose(1, 2).reshape(heads) for t in (qk[:, :, 0], qk[:, :, 1], qkv[:, :, 2])
        )
        # Not scaled_dot_product_attention: its backward pass in bfloat16 is slow on a CPU.
        q = q * heads[-1] ** -0.5
        scores = q @ k.mT if bias is None else torch.baddbmm(bias, q, k.mT)
        seen = (torch.softmax(scores, -1) @ v).view(batch, self.heads, length, -1)
        x = x + F.linear(seen.transpose(1, 2).reshape(batch, length, width), self.out.to(kind))
        h = F.rms_norm(x, (width,), self.norm2.to(kind), self.eps)
        gate, up = F.linear(h, torch.cat((self.gate, self.up)).to(kind)).chunk(2, dim=-1)
        return x + F.linear(F.silu(gate) * up, self.down.to(kind))


class Network(nn.Module):
    """Embedding, blocks, final norm and head."""

    cos: Tensor
    sin: Tensor

    def __init__(self, shape: NetworkShape) -> None:
        super().__init__()
        self.shape = shape
        self.embed = nn.Parameter(torch.randn(shape.vocab, shape.width) * 0.3)
        self.blocks = nn.ModuleList(NetworkBlock(shape) for _ in range(shape.layers))
        self.norm = nn.Parameter(torch.ones(shape.width))
        self.head = nn.Parameter(self.embed.detach() * 0.5)
        half = shape.width // shape.heads // 2
        angles = torch.arange(shape.context)[:, None] * shape.theta ** (-torch.arange(half) / half)
        self.register_buffer("cos", angles.cos().repeat(1, 2), persistent=False)
        self.register_buffer("sin", angles.sin().repeat(1, 2), persistent=False)

    def forward(
        self,
        ids: Tensor,
        positions: Tensor,
        rows: Tensor,
        mask: Tensor | None,
        causal: bool,
        dtype: torch.dtype = torch.float32,
    ) -> Tensor:
        """Logits [len(rows), V] for `rows`, indices into the flattened [B * T] canvas.

        `positions` is [T] or [B, T]; `mask` [B, T, T] is True where a row attends to a key, None
        for everywhere; `causal` replaces it by the lower triangle. `dtype` is that of the
        activations; the weights stay float32 and are rounded where they are used.
        """
        cos, sin = self.cos[positions].to(dtype), self.sin[positions].to(dtype)
        if positions.dim() == 1:
            cos, sin = cos[None], sin[None]
        cos, sin = cos[:, :, None, None], sin[:, :, None, None]
        length = ids.shape[1]
        if causal:
            mask = torch.ones(1, length, length, dtype=torch.bool, device=ids.device).tril()
        bias = None
        if mask is not None:
            bias = torch.zeros(mask.shape, dtype=dtype, device=ids.device).masked_fill(~mask, -1e4)
            spread = bias[:, None].expand(len(ids), self.shape.heads, length, length)
            bias = spread.reshape(-1, length, length)
        x = F.embedding(ids, self.embed).to(dtype)
        for block in self.blocks:
            x = block(x, cos, sin, bias)
        x = x.flatten(0, 1)[rows]
        x = F.rms_norm(x, (self.shape.width,), self.norm.to(dtype), self.shape.eps)
        return F.linear(x, self.head.to(dtype))

    @torch.no_grad()
    def seed_positions(self) -> None:
        """Initialise heads of the first layers to attend to a fixed distance (`DISTANCES`).

        To quote a row of a table, a network must find the token that follows a known one. Heads
        that see the previous token are the first half of that; from random weights they form late
        or never. Every embedding gets the same constant component. Queries and keys of these heads
        turn it into vectors whose rotary angles agree at the wanted distance.
        """
        width = self.shape.width // self.shape.heads
        angles = self.shape.theta ** (-torch.arange(width // 2) / (width // 2))
        self.embed[:, 0] = CONSTANT
        seen = F.rms_norm(self.embed, (self.shape.width,))[:, 0].mean().item()
        size = SHARPNESS * width**0.25 / seen
        for block, distances in zip(self.blocks, DISTANCES, strict=False):
            assert isinstance(block, NetworkBlock)
            for head, distance in enumerate(distances):
                own = slice(head * width, (head + 1) * width)
                query, key = block.q[own], block.k[own]
                query.zero_()
                key.zero_()
                for i, turn in enumerate((distance * angles[:FASTEST]).tolist()):
                    query[i, 0] = size
                    key[i, 0] = size * math.cos(turn)
                    key[width // 2 + i, 0] = -size * math.sin(turn)
                block.out[:, own] *= 2

    @torch.no_grad()
    def seed_numbers(self, ids: list[int]) -> None:
        """Initialise the embeddings of the numbers 0, 1, 2, ... (`ids`) from their digits.

        An embedding sums a vector for the tens, one for the units and waves of several periods,
        so that numbers share structure from the first step.
        """
        width = self.shape.width
        n = torch.arange(len(ids))
        tens, units = torch.randn(len(ids) // 10 + 1, width), torch.randn(10, width)
        periods = torch.tensor([2.0, 4.0, 5.0, 10.0, 20.0, 50.0, 100.0, 200.0, 400.0])
        turn = 2 * math.pi * n[:, None] / periods
        waves = torch.cat((turn.cos(), turn.sin()), dim=1) @ torch.randn(2 * len(periods), width)
        code = tens[n // 10] + units[n % 10] + waves / 2 + 0.3 * torch.randn(len(ids), width)
        self.embed[ids] = 0.3 * code / code.std()
        self.head.copy_(self.embed * 0.5)
