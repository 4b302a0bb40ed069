"""ModelAdapter: what the engine asks of a checkpoint, as pure functions of rows."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from accelerate.utils import align_module_device
from torch import Tensor, nn

from engine.models.ops import Rotary, attention, attention_weighed, rms_norm
from engine.rows import ALL, Rows, take


@dataclass(frozen=True)
class ModelInfo:
    """Sizes and ids of a checkpoint, all read from its `config.json`.

    `logit_shift` is 0 where hidden row p predicts token p (LLaDA), 1 where row p - 1 does (Dream).
    `stop_ids` are the ids that end a text; the first of them fills what follows.
    """

    family: str
    layers: int
    d_model: int
    n_heads: int
    n_kv_heads: int
    ffn: int
    vocab_size: int
    max_length: int
    rope_theta: float
    norm_eps: float
    mask_id: int
    eos_id: int
    pad_id: int
    stop_ids: tuple[int, ...]
    logit_shift: int = 0
    qkv_bias: bool = False
    tied: bool = False

    @property
    def head_dim(self) -> int:
        """Width of a head."""
        return self.d_model // self.n_heads

    @property
    def d_kv(self) -> int:
        """Width of K or of V."""
        return self.n_kv_heads * self.head_dim

    def to_dict(self) -> dict[str, Any]:
        """Plain data, for events and traces."""
        return dataclasses.asdict(self) | {"stop_ids": list(self.stop_ids)}


class Norm(nn.Module):
    """RMSNorm of the last dimension."""

    def __init__(self, info: ModelInfo) -> None:
        super().__init__()
        self.weight, self.eps = nn.Parameter(torch.empty(info.d_model)), info.norm_eps

    def forward(self, h: Tensor) -> Tensor:
        """[..., D] -> [..., D]."""
        return rms_norm(h, self.weight, self.eps)


class Fused(nn.Linear):
    """Several projections of one input, of which a run of rows is computed at a time."""

    def forward(self, input: Tensor, lo: int = 0, hi: int | None = None) -> Tensor:
        """[..., D] -> [..., hi - lo]: the outputs lo to hi."""
        bias = None if self.bias is None else self.bias[lo:hi]
        return F.linear(input, self.weight[lo:hi], bias)


class Block(nn.Module):
    """The weights of one layer, fused: q|k|v and gate|up.

    Each weight is used through a call of the leaf module that owns it and in no other way, so a
    leaf may lie on another device or be fetched when it is called (engine.models.place).
    """

    def __init__(self, info: ModelInfo) -> None:
        super().__init__()
        d, kv = info.d_model, info.d_kv
        self.attn_norm = Norm(info)
        self.ff_norm = Norm(info)
        self.qkv = Fused(d, d + 2 * kv, bias=info.qkv_bias)
        self.out = nn.Linear(d, d, bias=False)
        self.gate_up = nn.Linear(d, 2 * info.ffn, bias=False)
        self.down = nn.Linear(info.ffn, d, bias=False)


class ModelAdapter(nn.Module):
    """A pre-norm transformer with rotary attention; families differ in names and `info`.

    Every method is a pure function of rows; positions are global, so a K computed once stays
    valid wherever it is cached.
    """

    family: ClassVar[str]

    def __init__(self, info: ModelInfo) -> None:
        super().__init__()
        self.info = info
        self.norm = Norm(info)
        self.embedding = nn.Embedding.from_pretrained(torch.empty(info.vocab_size, info.d_model))
        self.blocks = nn.ModuleList(Block(info) for _ in range(info.layers))
        self.head = nn.Linear(info.d_model, info.vocab_size, bias=False)
        if info.tied:
            self.head.weight = self.embedding.weight
        self.requires_grad_(False)
        self._rotary = lru_cache(maxsize=4)(self._make_rotary)

    @property
    def device(self) -> torch.device:
        """The main device: activations lie there, and the weights unless they were placed."""
        return self.norm.weight.device

    @property
    def dtype(self) -> torch.dtype:
        """The weights' number format."""
        return self.norm.weight.dtype

    def block(self, layer: int) -> Block:
        """The weights of one layer."""
        block = self.blocks[layer]
        assert isinstance(block, Block)
        return block

    def embed(self, ids: Tensor) -> Tensor:
        """[B, n] ids -> [B, n, D]."""
        return self.embedding(ids)

    def attn_norm(self, layer: int, h: Tensor) -> Tensor:
        """The input of a layer's projections, [B, n, D]."""
        return self.block(layer).attn_norm(h)

    def project(
        self, layer: int, names: str, x: Tensor, rows: Rows, length: int, heads: slice | None = None
    ) -> tuple[Tensor, ...]:
        """Projections of normed rows `x` [B, n, D]: one [B, n, heads, dh] a letter of `names`.

        `names` is a run of "qkv", computed as one product; q and k come back rotated to their
        global positions `rows` of a canvas of `length`. `heads` restricts a single projection.
        """
        info = self.info
        widths = {"q": info.d_model, "k": info.d_kv, "v": info.d_kv}
        starts = {"q": 0, "k": info.d_model, "v": info.d_model + info.d_kv}
        lo, hi = starts[names[0]], starts[names[-1]] + widths[names[-1]]
        if heads is not None:
            lo, hi = lo + heads.start * info.head_dim, lo + heads.stop * info.head_dim
        out = self.block(layer).qkv(x, lo, hi).unflatten(-1, (-1, info.head_dim))
        if names == "v":
            return (out,)
        parts = [hi - lo] if heads is not None else [widths[n] for n in names]
        split = out.split([width // info.head_dim for width in parts], 2)
        rotary = self._rotary(length, self.dtype, self.device)
        cos, sin = self._angles(rotary, rows, len(x))
        return tuple(
            part if name == "v" else rotary(part, cos, sin)
            for name, part in zip(names, split, strict=True)
        )

    def attend(
        self, layer: int, q: Tensor, k: Tensor, v: Tensor, key_mask: Tensor | None
    ) -> Tensor:
        """Attention branch: q [B, n, H, dh] over k, v [B, Hkv, T, dh] -> [B, n, D]."""
        return self.block(layer).out(attention(q, k, v, key_mask))

    def attend_weighed(
        self, layer: int, q: Tensor, k: Tensor, v: Tensor, key_mask: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        """`attend` with the attention weights, mean over the heads, [B, n, T]."""
        out, weights = attention_weighed(q, k, v, key_mask)
        return self.block(layer).out(out), weights

    def value_weight(self, layer: int) -> tuple[Tensor, Tensor | None]:
        """Weight [d_kv, D] and bias [d_kv] (None where there is none) of the V projection."""
        linear, start = self.block(layer).qkv, self.info.d_model + self.info.d_kv
        with align_module_device(linear):
            bias = None if linear.bias is None else linear.bias[start:]
            return linear.weight[start:], bias

    def mlp(self, layer: int, h: Tensor) -> Tensor:
        """Feed-forward branch of the residual stream `h` [B, n, D], its norm included."""
        block = self.block(layer)
        gate, up = block.gate_up(block.ff_norm(h)).chunk(2, -1)
        return block.down(F.silu(gate) * up)

    def logits(self, h: Tensor) -> Tensor:
        """[B, n, D] -> [B, n, V], raw: neither shifted nor masked."""
        return self.head(self.norm(h))

    def _make_rotary(self, length: int, dtype: torch.dtype, device: torch.device) -> Rotary:
        return Rotary(length, self.info.head_dim, self.info.rope_theta, dtype, device)

    @staticmethod
    def _angles(rotary: Rotary, rows: Rows, batch: int) -> tuple[Tensor, Tensor]:
        if rows is ALL or isinstance(rows, slice):
            return take(rotary.cos, rows), take(rotary.sin, rows)
        return rotary.cos[0, rows.expand(batch, -1)], rotary.sin[0, rows.expand(batch, -1)]
