"""The small transformer that both embedded models are: causal or bidirectional, one set of weights.

Pre-norm blocks with RMSNorm, rotary positions (halves concatenated), SiLU-gated MLP, no biases and
an untied head: what the Qwen2 layout (with zero biases) and the LLaDA layout both hold.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn


@dataclass(frozen=True)
class Shape:
    """Sizes of the network; the defaults are those of the embedded models."""

    vocab: int = 768
    width: int = 128
    layers: int = 8
    heads: int = 4
    hidden: int = 352
    context: int = 1024
    theta: float = 10000.0
    eps: float = 1e-6


class Block(nn.Module):
    """Attention and MLP, with q|k|v and gate|up fused."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        width, hidden = shape.width, shape.hidden
        self.heads, self.eps = shape.heads, shape.eps
        self.norm1 = nn.Parameter(torch.ones(width))
        self.norm2 = nn.Parameter(torch.ones(width))
        scale = width**-0.5
        small = scale / math.sqrt(2 * shape.layers)
        self.qkv = nn.Parameter(torch.randn(3, width, width) * scale)
        self.out = nn.Parameter(torch.randn(width, width) * small)
        self.gate_up = nn.Parameter(torch.randn(2, hidden, width) * scale)
        self.down = nn.Parameter(torch.randn(width, hidden) * small * math.sqrt(width / hidden))

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor, mask: Tensor | None) -> Tensor:
        """Return the block's output for `x` [B, T, D]; `mask` [B, 1, T, T] is True where seen."""
        batch, length, width = x.shape
        h = F.rms_norm(x, (width,), self.norm1, self.eps)
        qkv = F.linear(h, self.qkv.flatten(0, 1)).view(batch, length, 3, self.heads, -1)
        qk = qkv[:, :, :2]
        a, b = qk.chunk(2, dim=-1)
        qk = qk * cos + torch.cat((-b, a), dim=-1) * sin
        q, k, v = (t.to(h.dtype).transpose(1, 2) for t in (qk[:, :, 0], qk[:, :, 1], qkv[:, :, 2]))
        # Written out: on a CPU the fused kernel's backward pass is slow in bfloat16.
        scores = (q * q.shape[-1] ** -0.5) @ k.mT
        if mask is not None:
            scores = scores.masked_fill(~mask, float("-inf"))
        seen = torch.softmax(scores, -1, dtype=torch.float32).to(v.dtype) @ v
        x = x + F.linear(seen.transpose(1, 2).reshape(batch, length, width), self.out)
        h = F.rms_norm(x, (width,), self.norm2, self.eps)
        gate, up = F.linear(h, self.gate_up.flatten(0, 1)).chunk(2, dim=-1)
        return x + F.linear(F.silu(gate) * up, self.down)


class Network(nn.Module):
    """Embedding, blocks, final norm and head."""

    cos: Tensor
    sin: Tensor

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.shape = shape
        self.embed = nn.Parameter(torch.randn(shape.vocab, shape.width) * 0.3)
        self.blocks = nn.ModuleList(Block(shape) for _ in range(shape.layers))
        self.norm = nn.Parameter(torch.ones(shape.width))
        self.head = nn.Parameter(self.embed.detach() * 0.5)
        half = shape.width // shape.heads // 2
        angles = torch.arange(shape.context)[:, None] * shape.theta ** (-torch.arange(half) / half)
        self.register_buffer("cos", angles.cos().repeat(1, 2), persistent=False)
        self.register_buffer("sin", angles.sin().repeat(1, 2), persistent=False)

    def forward(
        self, ids: Tensor, positions: Tensor, rows: Tensor, mask: Tensor | None, causal: bool
    ) -> Tensor:
        """Return logits [len(rows), V] for `rows`, indices into the flattened [B * T] canvas.

        `positions` is [T] or [B, T]; `mask` [B, T, T] is True where a row sees a key, None for
        all; `causal` shows each row the keys before and at it.
        """
        cos, sin = self.cos[positions], self.sin[positions]
        if positions.dim() == 1:
            cos, sin = cos[None], sin[None]
        cos, sin = cos[:, :, None, None], sin[:, :, None, None]
        length = ids.shape[1]
        if causal:
            mask = torch.ones(1, length, length, dtype=torch.bool, device=ids.device).tril()
        mask = None if mask is None else mask[:, None]
        x = F.embedding(ids, self.embed)
        for block in self.blocks:
            x = block(x, cos, sin, mask)
        x = x.flatten(0, 1)[rows]
        return F.linear(F.rms_norm(x, (self.shape.width,), self.norm, self.shape.eps), self.head)

    @torch.no_grad()
    def seed_numbers(self, ids: list[int]) -> None:
        """Start the embeddings of the numbers 0, 1, 2, ... (`ids`) from codes of their digits.

        A code for the tens, one for the units and waves of several periods: sums then share
        structure from the first step, instead of each number being learnt by itself.
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
