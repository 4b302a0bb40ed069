"""Reading and checking `config.json`: the names of its fields by family, and their values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from engine.models.base import ModelInfo
from engine.models.feed_forward import ExpertsInfo
from engine.models.loading.checkpoint import CheckpointError, read_json

# LLaDA's, SDAR's (in its two files) and Fast-dLLM v2's
MASK_TOKENS = ("<|mdm_mask|>", "<|MASK|>", "<MASK>", "|<MASK>|")
MAX_EXPERTS = 1024


@dataclass(frozen=True)
class ConfigFields:
    """Names of the sizes in a family's `config.json`, and the values that it must have.

    `required` holds the only supported values of fields that may be missing, `norm_eps` a default,
    `max_context` the positions that the family is documented for, which its config may exceed. The
    default names are those that `transformers` uses for Llama and Qwen2. A config without
    `head_dim`, the width of a head, divides `d_model` by the heads.
    """

    required: Mapping[str, Any]
    norm_eps: float
    max_context: int | None = None
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

        Raises CheckpointError naming a field that is missing or has an unsupported value.
        """
        check_values(config, {field: (value,) for field, value in self.required.items()})
        names = (self.d_model, self.layers, self.n_heads, self.ffn, self.max_length)
        width, layers, heads, ffn, context = (integer_field(config, name, 1) for name in names)
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
            stop_ids=(eos, *(i for i in stop_ids if i != eos)),
            logit_shift=logit_shift,
            qkv_bias=qkv_bias,
            tied=bool(config.get(self.tied, False)),
            head_dim=head or 0,
        )


def read_config(folder: Path) -> dict[str, Any]:
    """The `config.json` of a checkpoint folder, with the mask id of the tokenizer if it has none.

    The configs of LLaDA-V, SDAR and Fast-dLLM v2 may have none. Raises CheckpointError naming a
    file that is missing or not readable.
    """
    config = read_json(folder / "config.json")
    if config.get("mask_token_id") is None:
        found = (_added_token_id(folder, token) for token in MASK_TOKENS)
        config["mask_token_id"] = next((i for i in found if i is not None), None)
    return config


def _added_token_id(folder: Path, token: str) -> int | None:
    """The id of an added token in the tokenizer's files; None if they do not have it."""
    path = folder / "tokenizer_config.json"
    decoder = read_json(path).get("added_tokens_decoder") if path.is_file() else None
    for number, row in decoder.items() if isinstance(decoder, dict) else ():
        if isinstance(row, dict) and row.get("content") == token and number.isdecimal():
            return int(number)
    path = folder / "tokenizer.json"
    added = read_json(path).get("added_tokens") if path.is_file() else None
    for row in added if isinstance(added, list) else ():
        if isinstance(row, dict) and row.get("content") == token and type(row.get("id")) is int:
            return int(row["id"])
    return None


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
