"""Layout: names and shapes of the checkpoint tensors that make up an adapter's parameters."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from engine.models.base import ModelInfo


@dataclass(frozen=True)
class Layout:
    """The names of a checkpoint's tensors.

    `block` is the prefix of a layer, formatted with its number. `leaves` maps a parameter of
    TransformerBlock to the checkpoint modules that it concatenates. Tensors whose names begin
    with one of `skipped` are not read.
    """

    embedding: str
    norm: str
    head: str
    block: str
    leaves: Mapping[str, tuple[str, ...]]
    skipped: tuple[str, ...] = ()

    def sources(self, info: ModelInfo) -> dict[str, tuple[str, ...]]:
        """The checkpoint tensors that each parameter of the adapter concatenates."""
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
        """The shape of every tensor; embedding and head have `embedding_rows` rows."""
        shapes = _shapes(info, embedding_rows)
        return {
            name: shape
            for ours, theirs in self.sources(info).items()
            for name, shape in zip(theirs, shapes[_without_layer(ours)], strict=True)
        }


def _without_layer(name: str) -> str:
    """A parameter's name without `blocks.` and the number of its layer."""
    return name.split(".", 2)[2] if name.startswith("blocks.") else name


def _shapes(info: ModelInfo, rows: int) -> dict[str, tuple[tuple[int, ...], ...]]:
    """Shapes of the tensors that each parameter concatenates."""
    d, q, kv, ffn = info.d_model, info.d_q, info.d_kv, info.ffn
    return {
        "embedding.weight": ((rows, d),),
        "norm.weight": ((d,),),
        "head.weight": ((rows, d),),
        "attn_norm.weight": ((d,),),
        "ff_norm.weight": ((d,),),
        "qkv.weight": ((q, d), (kv, d), (kv, d)),
        "qkv.bias": ((q,), (kv,), (kv,)),
        "q_norm.weight": ((info.head_dim,),),
        "k_norm.weight": ((info.head_dim,),),
        "out.weight": ((d, q),),
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
# Qwen3's names: those of Llama, and a norm for the heads of the queries and of the keys.
LLAMA_QK_NORM = replace(
    LLAMA,
    leaves={
        **LLAMA.leaves,
        "q_norm.weight": ("self_attn.q_norm",),
        "k_norm.weight": ("self_attn.k_norm",),
    },
)
