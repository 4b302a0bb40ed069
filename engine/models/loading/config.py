"""Reading and checking `config.json`: the names of its fields by family, and their values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from engine.models.base import ModelInfo
from engine.models.feed_forward import ExpertsInfo
from engine.models.loading.checkpoint import CheckpointError, read_json
from engine.models.loading.special_tokens import added_token_ids, end_token_id, mask_token_id

MAX_EXPERTS = 1024
MAX_LAYERS = 1024  # as many as a trace may have
ROTARY = ("rope_theta", "partial_rotary_factor")  # fields that transformers 5 puts into an object
SUPPRESSED = (  # by LLaDA-V's sampler
    "<|startoftext|>", "<|endoftext|>", "<|start_header_id|>", "<|end_header_id|>",
)  # fmt: skip


@dataclass(frozen=True)
class ConfigFields:
    """Names of the sizes in a family's `config.json`, and the values that it must have.

    `required` holds the only supported values of fields that may be missing, `foreign` names fields
    that only other families have. `norm_eps` is a default, `max_context` the number of positions
    that the family is documented for, which its config may exceed. The default names are those that
    `transformers` uses for Llama and Qwen2. A config without `head_dim`, the width of a head,
    divides `d_model` by the heads.
    """

    required: Mapping[str, Any]
    norm_eps: float
    max_context: int | None = None
    foreign: tuple[str, ...] = ()
    layers: str = "num_hidden_layers"
    d_model: str = "hidden_size"
    n_heads: str = "num_attention_heads"
    n_kv_heads: str = "num_key_value_heads"
    ffn: str = "intermediate_size"
    max_length: str = "max_position_embeddings"
    tied: str = "tie_word_embeddings"
    head_dim: str = "head_dim"

    def read(
        self,
        config: Mapping[str, Any],
        family: str,
        stop_ids: tuple[int, ...],
        logit_shift: int = 0,
        qkv_bias: bool = False,
    ) -> ModelInfo:
        """ModelInfo of a config; `stop_ids` are ids that end a text besides EOS.

        Ids beyond the vocabulary are left out: a tokenizer may add tokens that the model lacks.
        Raises CheckpointError naming a field that is missing or has an unsupported value.
        """
        check_values(config, {field: (value,) for field, value in self.required.items()})
        for field in self.foreign:
            if config.get(field) is not None:
                raise CheckpointError(
                    f"config.json: {field} is {config[field]!r}, a field of another family than "
                    f"{family}; copy config.json and weights from one checkpoint"
                )
        names = (self.d_model, self.n_heads, self.ffn, self.max_length)
        width, heads, ffn, context = (integer_field(config, name, 1) for name in names)
        layers = integer_field(config, self.layers, 1, MAX_LAYERS + 1)
        vocab = integer_field(config, "vocab_size", 1)
        kv = integer_field(config, self.n_kv_heads, 1) if config.get(self.n_kv_heads) else heads
        head = (
            None if config.get(self.head_dim) is None else integer_field(config, self.head_dim, 2)
        )
        if (width % (2 * heads) if head is None else head % 2) or heads % kv:
            raise CheckpointError(
                f"config.json: {self.n_heads} must divide {self.d_model} into heads of an even "
                f"width, or {self.head_dim} be one, and {self.n_kv_heads} {self.n_heads}"
            )
        eos = integer_field(config, "eos_token_id", 0, vocab)
        padded = config.get("pad_token_id") is not None
        return ModelInfo(
            family=family,
            layers=layers,
            d_model=width,
            n_heads=heads,
            n_kv_heads=kv,
            ffn=ffn,
            vocab_size=vocab,
            max_length=min(context, self.max_context or context),
            rope_theta=positive_field(config, "rope_theta", 10_000.0),
            norm_eps=positive_field(config, "rms_norm_eps", self.norm_eps),
            mask_id=integer_field(config, "mask_token_id", 0, vocab),
            eos_id=eos,
            pad_id=integer_field(config, "pad_token_id", 0, vocab) if padded else eos,
            stop_ids=(eos, *(i for i in stop_ids if i != eos and i < vocab)),
            logit_shift=logit_shift,
            qkv_bias=qkv_bias,
            tied=bool(config.get(self.tied, False)),
            head_dim=head or 0,
            suppressed_ids=_suppressed_ids(config, vocab),
        )


def read_config(folder: Path) -> dict[str, Any]:
    """The `config.json` of a checkpoint folder.

    Ids of the mask and the end of text that it lacks are those of the tokenizer's files, and so are
    the tokens that LLaDA-V's sampler suppresses. Raises CheckpointError naming a file that is
    missing or not readable, or that has no such token, or a field that scales positions or says
    that the weights are quantised.
    """
    config = read_json(folder / "config.json")
    if config.get("quantization_config") is not None:
        raise CheckpointError(
            "config.json: quantization_config is set; use a checkpoint that is not quantised"
        )
    config = _rotary_fields(config) | config
    if config.get("mask_token_id") is None:
        config["mask_token_id"] = mask_token_id(folder)
    if config.get("eos_token_id") is None:
        config["eos_token_id"] = end_token_id(folder)
    if config.get("mm_vision_tower"):
        config["suppressed_token_ids"] = added_token_ids(folder, SUPPRESSED)
    return config


def _rotary_fields(config: Mapping[str, Any]) -> dict[str, Any]:
    """The fields ROTARY that a config has in `rope_parameters`, as transformers 5 writes them."""
    given = config.get("rope_parameters")
    given = {} if given is None else given
    if not isinstance(given, dict):
        raise CheckpointError(f"config.json: rope_parameters is {given!r}; an object expected")
    for field, value in given.items():
        if field not in ROTARY and (field, value) != ("rope_type", "default"):
            raise CheckpointError(
                f"config.json: rope_parameters.{field} is {value!r}; positions without a scale "
                "expected"
            )
    return {field: value for field, value in given.items() if field in ROTARY}


def _suppressed_ids(config: Mapping[str, Any], vocab: int) -> tuple[int, ...]:
    """`suppressed_token_ids` of a config, those that the vocabulary has; empty for another form."""
    given = config.get("suppressed_token_ids")
    ids = given if isinstance(given, list | tuple) else ()
    return tuple(token for token in ids if type(token) is int and 0 <= token < vocab)


def integer_field(config: Mapping[str, Any], field: str, lo: int, end: int = 2**31) -> int:
    """An integer of a config in [lo, end); CheckpointError names the field."""
    value = config.get(field)
    if type(value) is not int:
        raise CheckpointError(f"config.json: {field} should be a whole number, got {value!r}")
    if not lo <= value < end:
        raise CheckpointError(f"config.json: {field} is {value}; {lo} to {end - 1} expected")
    return value


def positive_field(config: Mapping[str, Any], field: str, default: float) -> float:
    """A positive number of a config; CheckpointError names the field."""
    value = config.get(field, default)
    if type(value) not in (int, float) or not 0 < value < 1e12:
        raise CheckpointError(f"config.json: {field} should be a positive number, got {value!r}")
    return float(value)


def check_values(config: Mapping[str, Any], allowed: Mapping[str, tuple[Any, ...]]) -> None:
    """CheckpointError names a field that is there and has none of the allowed values."""
    for field, values in allowed.items():
        if config.get(field, values[0]) not in values:
            expected = " or ".join(repr(value) for value in values)
            raise CheckpointError(f"config.json: {field} is {config[field]!r}; {expected} expected")


def experts_fields(config: Mapping[str, Any], ffn: str) -> ExpertsInfo:
    """The experts of a config whose field `ffn` is their inner width; CheckpointError names one."""
    count = integer_field(config, "num_experts", 2, MAX_EXPERTS + 1)
    active = integer_field(config, "num_experts_per_tok", 1, count + 1)
    return ExpertsInfo(count, active, integer_field(config, ffn, 1))
