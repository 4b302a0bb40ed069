"""ModelAdapter: the interface between the engine and a network, as pure functions of rows."""

from __future__ import annotations

import copy
import dataclasses
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, ClassVar, TypeVar

import torch
from accelerate.utils import align_module_device
from torch import Tensor, nn

from engine.core.rows import ALL, Rows
from engine.models.attention import attention, attention_with_weights
from engine.models.given_rows import GivenRows
from engine.models.linear import FusedLinear, SwiGLU
from engine.models.ops import RMSNorm, Rotary

A = TypeVar("A", bound="ModelAdapter")


@dataclass(frozen=True)
class ModelInfo:
    """Sizes and token ids of a checkpoint, read from its `config.json`.

    `logit_shift` is 0 if hidden row p predicts token p (LLaDA), 1 if row p - 1 does (Dream).
    `stop_ids` are the ids that end a text; the first one fills the positions after the end.
    `suppressed_ids` are never proposed.
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
    suppressed_ids: tuple[int, ...] = ()

    @property
    def head_dim(self) -> int:
        """Width of an attention head."""
        return self.d_model // self.n_heads

    @property
    def d_kv(self) -> int:
        """Width of the keys, and of the values, of all heads."""
        return self.n_kv_heads * self.head_dim

    def to_dict(self) -> dict[str, Any]:
        """The fields as plain data for events and traces."""
        lists = {"stop_ids": list(self.stop_ids), "suppressed_ids": list(self.suppressed_ids)}
        return dataclasses.asdict(self) | lists


class TransformerBlock(nn.Module):
    """The weights of one layer; q, k, v and gate, up are fused into one matrix each.

    Weights are used only by calling the leaf module that owns them, so that a leaf may be on
    another device or be loaded for the call (engine.models.loading.placement).
    """

    def __init__(self, info: ModelInfo) -> None:
        super().__init__()
        d, kv = info.d_model, info.d_kv
        self.attn_norm = RMSNorm(info.d_model, info.norm_eps)
        self.ff_norm = RMSNorm(info.d_model, info.norm_eps)
        self.qkv = FusedLinear(d, d + 2 * kv, bias=info.qkv_bias)
        self.out = FusedLinear(d, d)
        self.gate_up = SwiGLU(d, info.ffn)
        self.down = FusedLinear(info.ffn, d)


class ModelAdapter(nn.Module):
    """A pre-norm transformer with rotary attention; families differ in tensor names and `info`.

    Every method is a pure function of rows. Positions are global, so cached keys stay valid
    whichever rows are computed later.
    """

    family: ClassVar[str]

    def __init__(self, info: ModelInfo) -> None:
        super().__init__()
        self.info = info
        self.norm = RMSNorm(info.d_model, info.norm_eps)
        self.embedding = nn.Embedding.from_pretrained(torch.empty(info.vocab_size, info.d_model))
        self._layers = tuple(TransformerBlock(info) for _ in range(info.layers))
        self.blocks = nn.ModuleList(self._layers)
        self.head = FusedLinear(info.d_model, info.vocab_size)
        if info.tied:
            self.head.weight = self.embedding.weight
        self.requires_grad_(False)
        self._given: GivenRows | None = None
        self._rotary = lru_cache(maxsize=4)(self._make_rotary)
        sizes = {"q": info.n_heads, "k": info.n_kv_heads, "v": info.n_kv_heads}
        starts = {"q": 0, "k": info.n_heads, "v": info.n_heads + info.n_kv_heads}
        names = ("q", "k", "v", "qk", "kv", "qkv")
        self._heads = {run: [starts[run[0]], *(sizes[n] for n in run)] for run in names}

    @property
    def device(self) -> torch.device:
        """The main device: that of the activations, the norms, and of all weights unless placed."""
        return self.norm.weight.device

    @property
    def dtype(self) -> torch.dtype:
        """The dtype of the weights."""
        return self.norm.weight.dtype

    def block(self, layer: int) -> TransformerBlock:
        """The weights of one layer."""
        return self._layers[layer]

    def embed(self, ids: Tensor, rows: Rows = ALL) -> Tensor:
        """[B, n] ids at global `rows` -> [B, n, D]; given rows replace those of their ids."""
        h: Tensor = self.embedding(ids)
        return h if self._given is None else self._given.put(h, rows)

    def with_given_rows(self: A, given: GivenRows | None) -> A:
        """This adapter for a run with given embedding rows; all weights are shared."""
        if given is self._given:
            return self
        other = copy.copy(self)
        other._given = given
        return other

    def attn_norm(self, layer: int, h: Tensor) -> Tensor:
        """Normed input of a layer's q, k and v projections, [B, n, D]."""
        return self.block(layer).attn_norm(h)

    def project(
        self, layer: int, names: str, x: Tensor, rows: Rows, length: int, heads: slice | None = None
    ) -> tuple[Tensor, ...]:
        """Projections of normed rows `x` [B, n, D]: one [B, n, heads, dh] for each of `names`.

        `names` is a substring of "qkv", computed as one product; q and k are rotated to their
        global positions `rows` in a canvas of `length`. `heads` restricts a single projection.
        """
        width = self.info.head_dim
        first, *counts = self._heads[names]
        if heads is not None:
            first, counts = first + heads.start, [heads.stop - heads.start]
        out = self.block(layer).qkv(x, first * width, (first + sum(counts)) * width)
        out = out.view(*x.shape[:-1], -1, width)
        if names == "v":
            return (out,)
        rotated = counts[:-1] if names[-1] == "v" else counts
        qk, *rest = out.split_with_sizes([sum(rotated), *counts[len(rotated) :]], 2)
        rotary = self._rotary(length, x.dtype, x.device)
        return (*rotary(qk, *rotary.angles(rows)).split_with_sizes(rotated, 2), *rest)

    def rotary(self, length: int) -> Rotary:
        """The rotary embedding of canvases of `length`; the last four are cached."""
        return self._rotary(length, self.dtype, self.device)

    def attend(
        self, layer: int, q: Tensor, k: Tensor, v: Tensor, key_mask: Tensor | None
    ) -> Tensor:
        """Attention branch: q [B, n, H, dh] over k, v [B, Hkv, T, dh] -> [B, n, D]."""
        return self.block(layer).out(attention(q, k, v, key_mask))

    def attend_with_weights(
        self, layer: int, q: Tensor, k: Tensor, v: Tensor, key_mask: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        """`attend` with the attention weights, mean over the heads, [B, n, T]."""
        out, weights = attention_with_weights(q, k, v, key_mask)
        return self.block(layer).out(out), weights

    def value_weight(self, layer: int) -> tuple[Tensor, Tensor | None]:
        """Weight [d_kv, D] and bias [d_kv] (or None) of the value projection."""
        linear, start = self.block(layer).qkv, self.info.d_model + self.info.d_kv
        with align_module_device(linear):
            bias = None if linear.bias is None else linear.bias[start:]
            return linear.weight[start:], bias

    def mlp(self, layer: int, h: Tensor) -> Tensor:
        """Feed-forward branch of the residual stream `h` [B, n, D], including its norm."""
        block = self.block(layer)
        return block.down(block.gate_up(block.ff_norm(h)))

    def logits(self, h: Tensor) -> Tensor:
        """Logits [B, n, V] of hidden rows [B, n, D], neither shifted nor masked."""
        return self.head(self.norm(h))

    def _make_rotary(self, length: int, dtype: torch.dtype, device: torch.device) -> Rotary:
        return Rotary(length, self.info.head_dim, self.info.rope_theta, dtype, device)
