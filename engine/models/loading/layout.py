"""Layout: names and shapes of the checkpoint tensors that make up an adapter's parameters."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from engine.models.base import ModelInfo
from engine.models.feed_forward import ExpertsInfo

FEED_FORWARD = "feed_forward."  # the leaves of a layer's feed-forward network
Shapes = tuple[tuple[int, ...], ...]


@dataclass(frozen=True)
class Layout:
    """The names of a checkpoint's tensors.

    `block` is the prefix of a layer, formatted with its number. `leaves` maps a parameter of
    TransformerBlock to the checkpoint modules that it concatenates; a single module may hold all of
    them in this order. In a layer with experts the leaves of `experts` replace those of the dense
    feed-forward network; they map to names of tensors, of which one with `{}` stands for one tensor
    an expert, formatted with its number. Tensors whose names begin with one of `skipped` are not
    read.
    """

    embedding: str
    norm: str
    head: str
    block: str
    leaves: Mapping[str, tuple[str, ...]]
    skipped: tuple[str, ...] = ()
    experts: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    def sources(self, info: ModelInfo) -> dict[str, tuple[str, ...]]:
        """The checkpoint tensors that each parameter of the adapter concatenates."""
        out: dict[str, tuple[str, ...]] = {}
        for layer in range(info.layers):
            stem = self.block.format(layer)
            experts = info.experts_of(layer)
            for ours, theirs in self.leaves.items():
                if experts is None or not ours.startswith(FEED_FORWARD):
                    out[f"blocks.{layer}.{ours}"] = tuple(f"{stem}{leaf}.weight" for leaf in theirs)
            if experts is not None:
                for ours, theirs in self.experts.items():
                    out[f"blocks.{layer}.{ours}"] = _expert_tensors(stem, theirs, experts.count)
            if info.qkv_bias:
                biases = tuple(f"{stem}{leaf}.bias" for leaf in self.leaves["qkv.weight"])
                out[f"blocks.{layer}.qkv.bias"] = biases
        out |= {"embedding.weight": (self.embedding,), "norm.weight": (self.norm,)}
        return out if info.tied else out | {"head.weight": (self.head,)}

    def expected(self, info: ModelInfo, embedding_rows: int) -> dict[str, tuple[int, ...]]:
        """The shape of every tensor; embedding and head have `embedding_rows` rows."""
        out: dict[str, tuple[int, ...]] = {}
        for ours, theirs in self.sources(info).items():
            layer, name = _split_layer(ours)
            experts = None if layer is None else info.experts_of(layer)
            if experts is not None and name.startswith(FEED_FORWARD):
                shapes = _expert_shapes(experts, info.d_model)[name]
                if len(theirs) < len(shapes):
                    shapes = (_stacked(shapes, experts.count),)
            else:
                shapes = _shapes(info, embedding_rows)[name]
                if len(theirs) < len(shapes):
                    shapes = (_joined(shapes),)
            out |= zip(theirs, shapes, strict=True)
        return out


def _expert_tensors(stem: str, names: tuple[str, ...], experts: int) -> tuple[str, ...]:
    """Tensors of a layer whose names begin with `stem`; all those of an expert come together."""
    if "{}" not in names[0]:
        return tuple(stem + name for name in names)
    return tuple(stem + name.format(i) for i in range(experts) for name in names)


def _split_layer(name: str) -> tuple[int | None, str]:
    """The layer of a parameter, None if it is of none, and its name in the layer."""
    if not name.startswith("blocks."):
        return None, name
    _, layer, rest = name.split(".", 2)
    return int(layer), rest


def _joined(shapes: Shapes) -> tuple[int, ...]:
    """The shape of matrices of the same width on top of each other."""
    return (sum(shape[0] for shape in shapes), *shapes[0][1:])


def _stacked(shapes: Shapes, experts: int) -> tuple[int, ...]:
    """The shape of the matrices of all experts, one expert after the other, as one tensor."""
    rows, width = _joined(shapes)
    return (experts, rows // experts, width)


def _shapes(info: ModelInfo, rows: int) -> dict[str, Shapes]:
    """Shapes of the tensors that each parameter concatenates, in a layer without experts."""
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
        "feed_forward.gate_up.weight": ((ffn, d), (ffn, d)),
        "feed_forward.down.weight": ((d, ffn),),
    }


def _expert_shapes(experts: ExpertsInfo, d: int) -> dict[str, Shapes]:
    """Shapes of the tensors that each parameter of a router and its experts concatenates."""
    count, ffn, shared = experts.count, experts.ffn, experts.shared_ffn
    return {
        "feed_forward.router.weight": ((count, d),),
        "feed_forward.router.bias": ((count,),),
        "feed_forward.gate_up.weight": ((ffn, d),) * (2 * count),
        "feed_forward.down.weight": ((d, ffn),) * count,
        "feed_forward.shared.gate_up.weight": ((shared, d), (shared, d)),
        "feed_forward.shared.down.weight": ((d, shared),),
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
        "feed_forward.gate_up.weight": ("mlp.gate_proj", "mlp.up_proj"),
        "feed_forward.down.weight": ("mlp.down_proj",),
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
