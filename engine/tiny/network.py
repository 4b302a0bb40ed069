"""The small transformer that is trained as embedded model, causal or bidirectional.

Pre-norm blocks with RMSNorm, rotary positions (halves concatenated), SiLU-gated MLP, no biases and
an untied head, so that it can be exported in the LLaDA and (with zero biases) the Qwen2 layout.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

CONSTANT = 1.5  # the component of every embedding from which heads take their positions
DISTANCES = ((-1, -2, 1), (-1, -3, 2))  # of the first heads of the first layers
FASTEST, SHARPNESS = 4, 2.8  # rotary frequencies used, root of the score that each adds


class Copies(NamedTuple):
    """Noisy copies of a text at the end of a canvas: how many, and positions of each."""

    number: int = 0
    width: int = 0


NO_COPIES = Copies()


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


class Bias(NamedTuple):
    """What is added to the scores of B * H heads; None adds nothing.

    A canvas of C clean rows and N noisy copies of W rows has two parts. Clean rows see clean keys
    alone, rows of a copy see clean keys and those of their copy.
    """

    clean: Tensor | None = None  # [B * H, C, C]
    copies: Tensor | None = None  # [B * H, N, W, C + W]


def bias_of(
    mask: Tensor | None, copies: Copies, batch: int, heads: int, dtype: torch.dtype
) -> Bias:
    """The bias of a mask [B or 1, T, T] that is True where a row attends to a key."""
    if mask is None:
        return Bias()

    def bias(part: Tensor) -> Tensor:
        found = torch.zeros(part.shape, dtype=dtype, device=part.device).masked_fill(~part, -1e4)
        return found[:, None].expand(batch, heads, *part.shape[1:]).flatten(0, 1)

    if not copies.number:
        return Bias(bias(mask))
    clean = mask.shape[-1] - copies.number * copies.width
    starts = range(clean, mask.shape[-1], copies.width)
    owns = [slice(start, start + copies.width) for start in starts]
    parts = [torch.cat((mask[:, own, :clean], mask[:, own, own]), dim=2) for own in owns]
    return Bias(bias(mask[:, :clean, :clean]), bias(torch.stack(parts, dim=1)))


def attended(q: Tensor, k: Tensor, v: Tensor, bias: Bias) -> Tensor:
    """Attention of heads [B * H, T, d], [B * H, T, d].

    Scores that a canvas of noisy copies never uses are not computed: half of them or more.
    """
    if bias.copies is None:
        return _softmax_attention(q, k, v, bias.clean)
    assert bias.clean is not None
    clean, count = bias.clean.shape[-1], bias.copies.shape[1]

    def keys(both: Tensor) -> Tensor:
        before = both[:, None, :clean].expand(-1, count, -1, -1)
        return torch.cat((before, both[:, clean:].unflatten(1, (count, -1))), dim=2).flatten(0, 1)

    rows = q[:, clean:].unflatten(1, (count, -1)).flatten(0, 1)
    noisy = _softmax_attention(rows, keys(k), keys(v), bias.copies.flatten(0, 1))
    seen = _softmax_attention(q[:, :clean], k[:, :clean], v[:, :clean], bias.clean)
    return torch.cat((seen, noisy.view(len(q), -1, q.shape[-1])), dim=1)


def _softmax_attention(q: Tensor, k: Tensor, v: Tensor, bias: Tensor | None) -> Tensor:
    # Not scaled_dot_product_attention: its backward pass in bfloat16 is slow on a CPU.
    q = q * q.shape[-1] ** -0.5
    scores = q @ k.mT if bias is None else torch.baddbmm(bias, q, k.mT)
    return torch.softmax(scores, -1) @ v


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

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor, bias: Bias) -> Tensor:
        """The block's output for `x` [B, T, D]; `bias` is added to the scores."""
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
        seen = attended(q, k, v, bias).view(batch, self.heads, length, -1)
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
        copies: Copies = NO_COPIES,
    ) -> Tensor:
        """Logits [len(rows), V] for `rows`, indices into the flattened [B * T] canvas.

        `positions` is [T] or [B, T]; `mask` [B, T, T] is True where a row attends to a key, None
        for everywhere; `causal` replaces it by the lower triangle. `dtype` is that of the
        activations; the weights stay float32 and are rounded where they are used. `copies` are
        the noisy copies at the end of the canvas, if `mask` is that of a clean text and copies.
        """
        cos, sin = self.cos[positions].to(dtype), self.sin[positions].to(dtype)
        if positions.dim() == 1:
            cos, sin = cos[None], sin[None]
        cos, sin = cos[:, :, None, None], sin[:, :, None, None]
        length = ids.shape[1]
        if causal:
            mask = torch.ones(1, length, length, dtype=torch.bool, device=ids.device).tril()
        bias = bias_of(mask, copies, len(ids), self.shape.heads, dtype)
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
