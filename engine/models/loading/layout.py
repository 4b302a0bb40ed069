"""Layout: where a checkpoint keeps the tensors of an adapter, and what shapes they have."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from engine.models.base import ModelInfo


@dataclass(frozen=True)
class Layout:
    """The names of a checkpoint's tensors.

    `block` has a place for the number of the layer; `leaves` goes from a tensor of ours in a
    layer to the modules of theirs that it joins, in that order. Tensors whose names begin with
    one of `skipped` are left unread.
    """

    embedding: str
    norm: str
    head: str
    block: str
    leaves: Mapping[str, tuple[str, ...]]
    skipped: tuple[str, ...] = ()

    def sources(self, info: ModelInfo) -> dict[str, tuple[str, ...]]:
        """For every parameter of the adapter the tensors of the checkpoint that make it up."""
        out: dict[str, tuple[str, ...]] = {}
        for layer in range(info.layers):
            stem = self.block.format(layer)
            for ours, theirs in self.leaves.items():
                out[f"blocks.{layer}.{ours}"] = tuple(f"{stem}{leaf}.weight" for leaf in theirs)
            if info.qkv_bias:
                biases = tuple(f"{stem}{leaf}.bias" for leaf in self.leaves["qkv.weight"])
                out[f"blocks.{layer}.qkv.bias"] = biases
        out |= {"embedding.weight": (self.embedding,), "norm.weight": (self.norm,)}
        return out if info.tied else out | {"head.weight": (self.head,)}

    def expected(self, info: ModelInfo, embedding_rows: int) -> dict[str, tuple[int, ...]]:
        """Every tensor of the checkpoint with its shape; embedding and head may have spare rows."""
        shapes = _shapes(info, embedding_rows)
        return {
            name: shape
            for ours, theirs in self.sources(info).items()
            for name, shape in zip(theirs, shapes[_leaf(ours)], strict=True)
        }


def _leaf(name: str) -> str:
    """The name of a parameter without the number of its layer."""
    return name.split(".", 2)[2] if name.startswith("blocks.") else name


def _shapes(info: ModelInfo, rows: int) -> dict[str, tuple[tuple[int, ...], ...]]:
    """Shapes of the checkpoint's tensors by the name of ours that they make up."""
    d, kv, ffn = info.d_model, info.d_kv, info.ffn
    return {
        "embedding.weight": ((rows, d),),
        "norm.weight": ((d,),),
        "head.weight": ((rows, d),),
        "attn_norm.weight": ((d,),),
        "ff_norm.weight": ((d,),),
        "qkv.weight": ((d, d), (kv, d), (kv, d)),
        "qkv.bias": ((d,), (kv,), (kv,)),
        "out.weight": ((d, d),),
        "gate_up.weight": ((ffn, d), (ffn, d)),
        "down.weight": ((d, ffn),),
    }


LLAMA = Layout(
    embedding="model.embed_tokens.weight",
    norm="model.norm.weight",
    head="lm_head.weight",
    block="model.layers.{}.",
    leaves={
        "attn_norm.weight": ("input_layernorm",),
        "ff_norm.weight": ("post_attention_layernorm",),
        "qkv.weight": ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"),
        "out.weight": ("self_attn.o_proj",),
        "gate_up.weight": ("mlp.gate_proj", "mlp.up_proj"),
        "down.weight": ("mlp.down_proj",),
    },
)
