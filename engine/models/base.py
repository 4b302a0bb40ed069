"""ModelAdapter: what the engine asks of a checkpoint, as pure functions of rows."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, ClassVar

import torch
from accelerate.utils import align_module_device
from torch import Tensor, nn

from engine.core.rows import Rows
from engine.models.attention import attention, attention_weighed
from engine.models.linear import Gated, Projection
from engine.models.ops import Rotary, rms_norm


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


class Block(nn.Module):
    """The weights of one layer, fused: q|k|v and gate|up.

    Each weight is used through a call of the leaf module that owns it and in no other way, so a
    leaf may lie on another device or be fetched when it is called (engine.models.loading.placement).
    """

    def __init__(self, info: ModelInfo) -> None:
        super().__init__()
        d, kv = info.d_model, info.d_kv
        self.attn_norm = Norm(info)
        self.ff_norm = Norm(info)
        self.qkv = Projection(d, d + 2 * kv, bias=info.qkv_bias)
        self.out = Projection(d, d)
        self.gate_up = Gated(d, info.ffn)
        self.down = Projection(info.ffn, d)


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
        self._layers = tuple(Block(info) for _ in range(info.layers))
        self.blocks = nn.ModuleList(self._layers)
        self.head = Projection(info.d_model, info.vocab_size)
        if info.tied:
            self.head.weight = self.embedding.weight
        self.requires_grad_(False)
        self._rotary = lru_cache(maxsize=4)(self._make_rotary)
        sizes = {"q": info.n_heads, "k": info.n_kv_heads, "v": info.n_kv_heads}
        starts = {"q": 0, "k": info.n_heads, "v": info.n_heads + info.n_kv_heads}
        runs = ("q", "k", "v", "qk", "kv", "qkv")
        self._spans = {run: [starts[run[0]], *(sizes[n] for n in run)] for run in runs}

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
        return self._layers[layer]

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
        width = self.info.head_dim
        lo, *counts = self._spans[names]
        if heads is not None:
            lo, counts = lo + heads.start, [heads.stop - heads.start]
        hi = lo + sum(counts)
        out = self.block(layer).qkv(x, lo * width, hi * width)
        out = out.view(*x.shape[:-1], -1, width)
        if names == "v":
            return (out,)
        turning = counts[:-1] if names[-1] == "v" else counts
        cosine_drift, *rest = out.split_with_sizes([sum(turning), *counts[len(turning) :]], 2)
        rotary = self._rotary(length, x.dtype, x.device)
        cosine_drift = rotary(cosine_drift, *rotary.angles(rows))
        return (*cosine_drift.split_with_sizes(turning, 2), *rest)

    def rotary(self, length: int) -> Rotary:
        """The tables for canvases of `length`, out of a small cache."""
        return self._rotary(length, self.dtype, self.device)

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
        return block.down(block.gate_up(block.ff_norm(h)))

    def logits(self, h: Tensor) -> Tensor:
        """[B, n, D] -> [B, n, V], raw: neither shifted nor masked."""
        return self.head(self.norm(h))

    def _make_rotary(self, length: int, dtype: torch.dtype, device: torch.device) -> Rotary:
        return Rotary(length, self.info.head_dim, self.info.rope_theta, dtype, device)
