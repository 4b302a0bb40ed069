"""ModelAdapter: the interface between the engine and a network, as pure functions of rows."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, ClassVar, Self, TypeVar

import torch
from accelerate.utils import align_module_device
from torch import Tensor, nn

from engine.core.rows import ALL, Rows
from engine.models.attention import attention, attention_routines, attention_with_weights
from engine.models.feed_forward import ExpertLinear, ExpertsInfo, MixtureOfExperts, feed_forward
from engine.models.given_rows import GivenRows
from engine.models.kernels.choice import TORCH, Kernels
from engine.models.kernels.linear import FEW_ROWS, FusedLinear, RoutineLinear
from engine.models.ops import RMSNorm, Rotary

A = TypeVar("A", bound="ModelAdapter")


@dataclass(frozen=True)
class ModelInfo:
    """Sizes and token ids of a checkpoint, read from its `config.json`.

    `logit_shift` is 0 if hidden row p predicts token p (LLaDA), 1 if row p - 1 does (Dream).
    `stop_ids` are the ids that end a text; `fill_id`, one of them, fills the positions after the
    end and is `eos_id` unless given. Ids from `text_size` on are no text (image codes; 0: all are
    text), and are never proposed if `text_only`. `double_confidence`: confidences are computed in
    float64. `suppressed_ids` are never proposed either.

    `ffn` is the inner width of a dense feed-forward network; `experts` are None if all are dense.

    `head_dim` is the width of an attention head (0: `d_model` / `n_heads`), of which rotary
    positions turn the first `rotary_dim` values (0: all). With `qk_norm`, queries and keys are
    normed head by head before they are rotated. `attention` is `full`, where every position attends
    to all, or `block_causal`, where position i attends to the blocks of `block_size` positions up
    to its own; blocks lie from position 0 on. `block_sizes` are all sizes that a run may choose.
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
    experts: ExpertsInfo | None = None
    head_dim: int = 0
    rotary_dim: int = 0
    qk_norm: bool = False
    attention: str = "full"
    block_size: int = 0
    fill_id: int = -1
    block_sizes: tuple[int, ...] = ()
    text_size: int = 0
    text_only: bool = True
    double_confidence: bool = False
    suppressed_ids: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        if not self.head_dim and self.n_heads:
            object.__setattr__(self, "head_dim", self.d_model // self.n_heads)
        if not self.rotary_dim:
            object.__setattr__(self, "rotary_dim", self.head_dim)
        if self.fill_id < 0:
            object.__setattr__(self, "fill_id", self.eos_id)

    @property
    def d_q(self) -> int:
        """Width of the queries of all heads, which may differ from `d_model`."""
        return self.n_heads * self.head_dim

    @property
    def d_kv(self) -> int:
        """Width of the keys, and of the values, of all heads."""
        return self.n_kv_heads * self.head_dim

    def experts_of(self, layer: int) -> ExpertsInfo | None:
        """The experts of a layer; None if its feed-forward network is dense."""
        dense = self.experts is None or layer < self.experts.dense_layers
        return None if dense else self.experts

    def to_dict(self) -> dict[str, Any]:
        """The fields as plain data for events and traces."""
        names = ("stop_ids", "block_sizes", "suppressed_ids")
        return dataclasses.asdict(self) | {name: list(getattr(self, name)) for name in names}

    def with_block_size(self, size: int) -> ModelInfo:
        """The model with other blocks; itself if its attention is full."""
        if not self.block_causal or size == self.block_size:
            return self
        return replace(self, block_size=size)

    @property
    def block_causal(self) -> bool:
        """Whether a position attends only to blocks up to its own."""
        return self.attention == "block_causal"

    @property
    def region_shift(self) -> int:
        """Rows from a row to the token whose region it belongs to; see engine.core.regions.

        Blocks of block-causal attention are blocks of rows, so there it is 0.
        """
        return 0 if self.block_causal else self.logit_shift


class TransformerBlock(nn.Module):
    """The weights of a layer; q, k, v and gate, up are fused into one matrix each.

    Weights are used only by calling the leaf module that owns them, so that a leaf may be on
    another device or be loaded for the call (engine.models.loading.placement).
    """

    def __init__(self, info: ModelInfo, layer: int) -> None:
        super().__init__()
        d, q = info.d_model, info.d_q
        self.attn_norm = RMSNorm(info.d_model, info.norm_eps)
        self.ff_norm = RMSNorm(info.d_model, info.norm_eps)
        self.qkv = FusedLinear(d, q + 2 * info.d_kv, bias=info.qkv_bias)
        if info.qk_norm:
            self.q_norm = RMSNorm(info.head_dim, info.norm_eps)
            self.k_norm = RMSNorm(info.head_dim, info.norm_eps)
        self.out = FusedLinear(q, d)
        self.feed_forward = feed_forward(d, info.ffn, info.experts_of(layer))


def has_hooks(model: nn.Module) -> bool:
    """Whether accelerate moves tensors at calls: weights are on several devices, or offloaded."""
    return any(hasattr(module, "_hf_hook") for module in model.modules())


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
        self._layers = tuple(TransformerBlock(info, i) for i in range(info.layers))
        self.blocks = nn.ModuleList(self._layers)
        self.head = FusedLinear(info.d_model, info.vocab_size)
        if info.tied:
            self.head.weight = self.embedding.weight
        self.requires_grad_(False)
        self.kernels = Kernels()
        self._given: GivenRows | None = None
        self._rotary = _rotary_cache(info, self.kernels)
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

    def with_block_size(self, size: int) -> Self:
        """This model with the same weights and other blocks; itself if its attention is full."""
        info = self.info.with_block_size(size)
        if info is self.info:
            return self
        other = copy.copy(self)
        other.info = info
        return other

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

        `names` is a substring of "qkv", computed as one product; q and k are normed if the model
        does so, and rotated to their global positions `rows` in a canvas of `length`. `heads`
        restricts a single projection.
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
        qk, *rest = _parts(out, [sum(rotated), *counts[len(rotated) :]])
        if self.info.qk_norm:
            qk = self._normed_heads(layer, names, _parts(qk, rotated))
        rotary = self._rotary(length, x.dtype, x.device)
        return (*_parts(rotary(qk, rows), rotated), *rest)

    def rotary(self, length: int) -> Rotary:
        """The rotary embedding of canvases of `length`; the last four are cached."""
        return self._rotary(length, self.dtype, self.device)

    def attend(
        self, layer: int, q: Tensor, k: Tensor, v: Tensor, key_mask: Tensor | None
    ) -> Tensor:
        """Attention branch: q [B, n, H, dh] over k, v [B, Hkv, T, dh] -> [B, n, D]."""
        fused = self.kernels.fused.get("attention")
        if fused is not None and key_mask is None and q.shape[0] * q.shape[1] <= FEW_ROWS:
            return self.block(layer).out(fused(q, k, v))
        return self.block(layer).out(attention(q, k, v, key_mask, self._routine(q, k)))

    def attend_with_weights(
        self, layer: int, q: Tensor, k: Tensor, v: Tensor, key_mask: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        """`attend` with the attention weights, mean over the heads, [B, n, T]."""
        out, weights = attention_with_weights(q, k, v, key_mask, self._routine(q, k))
        return self.block(layer).out(out), weights

    def value_weight(self, layer: int) -> tuple[Tensor, Tensor | None]:
        """Weight [d_kv, D] and bias [d_kv] (or None) of the value projection."""
        linear, start = self.block(layer).qkv, self.info.d_q + self.info.d_kv
        with align_module_device(linear):
            bias = None if linear.bias is None else linear.bias[start:]
            return linear.weight[start:], bias

    def mlp(self, layer: int, h: Tensor) -> Tensor:
        """Feed-forward branch of the residual stream `h` [B, n, D], including its norm."""
        block = self.block(layer)
        return block.feed_forward(block.ff_norm(h))

    def mlp_with_experts(self, layer: int, h: Tensor) -> tuple[Tensor, Tensor | None]:
        """`mlp`, and the experts that each row used, [B, n, k] int64; None in a dense layer."""
        block = self.block(layer)
        if not isinstance(block.feed_forward, MixtureOfExperts):
            return self.mlp(layer, h), None
        return block.feed_forward.forward_with_experts(block.ff_norm(h))

    def logits(self, h: Tensor) -> Tensor:
        """Logits [B, n, V] of hidden rows [B, n, D], neither shifted nor masked."""
        return self.head(self.norm(h))

    def use_kernels(self, kernels: Kernels) -> None:
        """Choose the routines of products and attention, and the fused kernels of a layer."""
        self.kernels = kernels
        for module in self.modules():
            if isinstance(module, RMSNorm) and len(module.weight) != self.info.d_model:
                continue  # of a head, whose rows are not contiguous
            if isinstance(module, RoutineLinear | ExpertLinear | RMSNorm):
                module.kernels = kernels
        self._rotary = _rotary_cache(self.info, kernels)

    def _routine(self, q: Tensor, k: Tensor) -> str:
        """The routine for attention of `q` [B, n, H, dh] over `k` [B, Hkv, T, dh]."""
        batch, n, heads, width = q.shape
        if len(attention_routines(q.dtype, q.device)) == 1:
            return TORCH
        return self.kernels.routine("attention", q.dtype, n, k.shape[2], width, batch * heads)

    def _normed_heads(self, layer: int, names: str, parts: Sequence[Tensor]) -> Tensor:
        """The queries and keys `parts` of `names`, each normed head by head, concatenated."""
        block = self.block(layer)
        norms = {"q": block.q_norm, "k": block.k_norm}
        return torch.cat([norms[n](x) for n, x in zip(names, parts, strict=False)], 2)


def _parts(x: Tensor, heads: list[int]) -> Sequence[Tensor]:
    """`x` [B, n, H, dh] in parts of so many `heads` each; `x` itself if that is one part."""
    return (x,) if len(heads) == 1 else x.split_with_sizes(heads, 2)


def _rotary_cache(
    info: ModelInfo, kernels: Kernels
) -> Callable[[int, torch.dtype, torch.device], Rotary]:
    """The rotary embedding of a length, a number format and a device; the last four are cached.

    The cache does not refer to its adapter, which would then be freed by a garbage collection only.
    """

    @lru_cache(maxsize=4)
    def rotary(length: int, dtype: torch.dtype, device: torch.device) -> Rotary:
        fused = kernels.fused.get("rotation")
        return Rotary(length, info.rotary_dim, info.rope_theta, dtype, device, fused)

    return rotary
