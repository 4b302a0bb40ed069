"""Guider: an autoregressive model that verifies drafts, and readers that keep its cache."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import astuple, dataclass
from functools import cached_property
from itertools import takewhile
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from transformers import AutoConfig, AutoModelForCausalLM, DynamicCache, PretrainedConfig
from transformers.utils import logging

from engine.core.device import is_out_of_memory, synchronized_time
from engine.core.events import PARTS
from engine.models.base import ModelInfo
from engine.models.loading.checkpoint import Checkpoint, CheckpointError, read_json
from engine.models.loading.config import MAX_LAYERS, integer_field
from engine.models.tokenizer import Tokenizer

STOP_TOKENS = ("<|eot_id|>", "<|im_end|>", "<|endoftext|>")


@dataclass(frozen=True)
class Guider:
    """A causal language model of `transformers` with its tokenizer.

    `stop_ids` end a text; `digest` identifies the weights.
    """

    name: str
    model: Any
    tokenizer: Tokenizer
    stop_ids: tuple[int, ...]
    digest: str

    @property
    def vocab_size(self) -> int:
        """Number of logits; some may belong to no token."""
        return int(self.model.get_output_embeddings().weight.shape[0])

    @property
    def parameters(self) -> int:
        """Number of parameters, a tied head counted once."""
        return sum(p.numel() for p in self.model.parameters())

    def weight_bytes(self) -> int:
        """Bytes of the weights."""
        return sum(p.nbytes for p in self.model.parameters())

    def cache_bytes(self, tokens: int) -> int:
        """Bytes of the keys and values of `tokens` tokens."""
        return cache_numbers_per_token(self.model.config) * tokens * self.model.dtype.itemsize

    def flops(self, fed: int, keys: int, heads: int) -> int:
        """FLOPs of a forward; see `flop_parts`."""
        return int(self.flop_parts(fed, keys, heads).sum())

    def flop_parts(self, fed: int, keys: int, heads: int) -> NDArray[np.int64]:
        """FLOPs by events.PARTS of a forward of `fed` tokens over `keys` keys.

        `heads` tokens get logits. Only matrix products of a dense model are counted, as in
        engine.models.flops.
        """
        by_token, by_key, by_head = self._flop_rates
        return fed * by_token + fed * keys * by_key + heads * by_head

    @cached_property
    def _flop_rates(self) -> NDArray[np.int64]:
        """FLOPs [3, parts] of a token fed, of each of its keys, and of its logits."""
        config = self.model.config
        width = config.num_attention_heads * _head_dim(config)
        by_token = {part: 2 * self._weights[part] for part in ("projections", "ffn")}
        by_key = {"attention": 4 * width * config.num_hidden_layers}
        by_head = {"head": 2 * self._weights["head"]}
        rates = (by_token, by_key, by_head)
        return np.array([[found.get(part, 0) for part in PARTS] for found in rates], np.int64)

    @cached_property
    def _weights(self) -> dict[str, int]:
        """Numbers in the matrices of each part."""
        head = self.model.get_output_embeddings()
        found = {"projections": 0, "ffn": 0, "head": int(head.weight.numel())}
        for name, module in self.model.named_modules():
            if isinstance(module, nn.Linear) and module is not head:
                found["ffn" if ".mlp." in name else "projections"] += module.weight.numel()
        return found

    def describe(self) -> dict[str, Any]:
        """Plain data for RunStarted.guider."""
        return {
            "name": self.name,
            "vocab_size": self.vocab_size,
            "layers": int(self.model.config.num_hidden_layers),
            "parameters": self.parameters,
            "digest": self.digest,
        }


def _head_dim(config: PretrainedConfig) -> int:
    own = getattr(config, "head_dim", None)
    return int(own or config.hidden_size // config.num_attention_heads)


def cache_numbers_per_token(config: PretrainedConfig) -> int:
    """Numbers in the keys and values of one token."""
    return 2 * config.num_hidden_layers * config.num_key_value_heads * _head_dim(config)


def count_parameters(config: PretrainedConfig) -> int:
    """Parameters of a model with this config, a tied head counted once; nothing is allocated."""
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(config)
    return sum(p.numel() for p in model.parameters())


def read_config(folder: Path) -> PretrainedConfig:
    """Read a guider's config.

    Raises CheckpointError if it has too many layers, since `transformers` makes a part for each of
    them, or if the library has no causal model for it.
    """
    fields = read_json(folder / "config.json")
    if "num_hidden_layers" in fields:
        integer_field(fields, "num_hidden_layers", 1, MAX_LAYERS + 1)
    try:
        config = AutoConfig.from_pretrained(folder, local_files_only=True, trust_remote_code=False)
    except Exception as error:  # the library raises bare Exceptions for damaged files
        raise CheckpointError(f"config.json: cannot be read as a guider's ({error})") from None
    if type(config) not in AutoModelForCausalLM._model_mapping:
        raise CheckpointError(
            f"config.json: {config.model_type!r} is no autoregressive model; choose a causal one"
        )
    return config


def find_stop_ids(tokenizer: Tokenizer, config: PretrainedConfig) -> tuple[int, ...]:
    """Ids that end a text, by the tokenizer's names and the config; the end of a turn is first.

    Raises CheckpointError if there is none.
    """
    named = [tokenizer.specials[name] for name in STOP_TOKENS if name in tokenizer.specials]
    given = config.eos_token_id
    also = [] if given is None else [given] if isinstance(given, int) else list(given)
    stop_ids = tuple(dict.fromkeys([*named, *also]))
    if not stop_ids:
        raise CheckpointError("config.json: eos_token_id is missing, and no token ends a text")
    return stop_ids


def causal_info(config: PretrainedConfig, stop_ids: tuple[int, ...]) -> ModelInfo:
    """Sizes and ids of a causal model in Qwen2's or Llama's layout.

    `mask_id` is an id beyond the vocabulary, for the positions that are not written yet, and
    `vocab_size` counts it. Raises CheckpointError naming a field that the config lacks, or if a
    size is wrong.
    """
    try:
        vocab, rotary = int(config.vocab_size), getattr(config, "rope_parameters", None) or {}
        return ModelInfo(
            family=str(config.model_type),
            layers=int(config.num_hidden_layers),
            d_model=int(config.hidden_size),
            head_dim=_head_dim(config),
            n_heads=int(config.num_attention_heads),
            n_kv_heads=int(config.num_key_value_heads),
            ffn=int(config.intermediate_size),
            vocab_size=vocab + 1,
            max_length=int(config.max_position_embeddings),
            rope_theta=float(rotary.get("rope_theta", 0.0)),
            norm_eps=float(config.rms_norm_eps),
            mask_id=vocab,
            eos_id=stop_ids[0],
            pad_id=stop_ids[0],
            stop_ids=stop_ids,
            logit_shift=1,
            tied=bool(config.tie_word_embeddings),
        )
    except AttributeError as error:
        raise CheckpointError(
            f"config.json: {error.name} is missing; choose a causal model in Qwen2's or Llama's "
            "layout"
        ) from None
    except (TypeError, ValueError, ZeroDivisionError) as error:
        raise CheckpointError(
            f"config.json: a size is no positive number ({error}); copy the file again"
        ) from None


@contextmanager
def _without_progress_bar() -> Iterator[None]:
    """Disable the progress bar of `transformers`, since the page shows its own."""
    shown = logging.is_progress_bar_enabled()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        if shown:
            logging.enable_progress_bar()


def load_guider(name: str, folder: Path, dtype: torch.dtype, device: torch.device) -> Guider:
    """Load the guider of a folder: safetensors only, without running code of the folder.

    Each weight is read to its device. Raises CheckpointError naming the file, or a tensor that is
    missing, and the error of the allocator if memory runs out.
    """
    tokenizer, config = Tokenizer(folder), read_config(folder)
    files = Checkpoint(folder)  # raises if this is no safetensors checkpoint
    try:
        with _without_progress_bar():
            loaded: Any = AutoModelForCausalLM.from_pretrained(
                folder, config=config, dtype=dtype, device_map=device, local_files_only=True,
                use_safetensors=True, trust_remote_code=False, output_loading_info=True,
            )  # fmt: skip
    except Exception as error:  # the library raises bare Exceptions for damaged files
        if is_out_of_memory(error):
            raise
        raise CheckpointError(f"model.safetensors: cannot be read ({error})") from None
    model, info = loaded
    wrong = sorted(map(str, [*info["missing_keys"], *info["mismatched_keys"]]))
    if wrong:
        raise CheckpointError(f"model.safetensors: {wrong[0]} is missing or of another shape")
    stop_ids = find_stop_ids(tokenizer, config)
    return Guider(name, model.eval(), tokenizer, stop_ids, files.digest())


@dataclass
class GuiderCost:
    """The cost of a guider's `forwards` over `fed` tokens.

    The prefill is a separate forward over `prefilled` tokens; `ms` and `flops` include it.
    """

    forwards: int = 0
    fed: int = 0
    prefilled: int = 0
    ms: float = 0.0
    prefill_ms: float = 0.0
    flops: int = 0
    prefill_flops: int = 0

    def __add__(self, other: GuiderCost) -> GuiderCost:
        """The sum of two costs."""
        return GuiderCost(*(a + b for a, b in zip(astuple(self), astuple(other), strict=True)))


class GuiderReader:
    """Reads the texts of one sequence and caches keys and values of their common prefix.

    `ids` are the tokens in the cache; the last known token is always fed again. On its first read,
    the tokens before the last known one are computed in a separate forward without logits, the
    prefill.
    """

    def __init__(self, guider: Guider) -> None:
        self._guider, self._device = guider, guider.model.device
        self.cache = DynamicCache()
        self.ids: list[int] = []
        self._cost = GuiderCost()
        self._peak_tokens = 0

    @torch.inference_mode()
    def read(self, ids: Sequence[int], known: int) -> Tensor:
        """Logits [len(ids) - known, V] of each of `ids[known:]`, given the ids before it."""
        assert 0 < known < len(ids), "a guider reads on from a token"
        started, cached = synchronized_time(self._device), len(self.ids)
        self._crop_to(min(_common_prefix(self.ids, ids), known - 1))
        if cached == 0 and known > 1:
            self._prefill(ids[: known - 1])
        feed, rows = list(ids[len(self.ids) : -1]), len(ids) - known
        logits = self._guider.model(
            input_ids=self._tensor(feed),
            past_key_values=self.cache,
            use_cache=True,
            logits_to_keep=rows,
        ).logits[0]
        self.ids += feed
        self._peak_tokens = max(self._peak_tokens, len(self.ids))
        self._cost.forwards += 1
        self._cost.fed += len(feed)
        self._cost.flops += self._guider.flops(len(feed), len(self.ids), rows)
        self._cost.ms += (synchronized_time(self._device) - started) * 1e3
        return logits

    def crop(self, ids: Sequence[int]) -> None:
        """Remove keys and values that do not belong to `ids[:-1]`."""
        self._crop_to(_common_prefix(self.ids, ids[:-1]))

    def take_cost(self) -> GuiderCost:
        """The cost since the last call."""
        cost, self._cost = self._cost, GuiderCost()
        return cost

    def cache_bytes(self) -> int:
        """Peak bytes of keys and values."""
        return self._guider.cache_bytes(self._peak_tokens)

    def _prefill(self, ids: Sequence[int]) -> None:
        started, guider = synchronized_time(self._device), self._guider
        guider.model.base_model(
            input_ids=self._tensor(ids), past_key_values=self.cache, use_cache=True
        )
        self.ids = list(ids)
        flops = guider.flops(len(ids), len(ids), 0)
        self._cost.prefilled += len(ids)
        self._cost.flops += flops
        self._cost.prefill_flops += flops
        self._cost.prefill_ms += (synchronized_time(self._device) - started) * 1e3

    def _crop_to(self, length: int) -> None:
        if length < len(self.ids):
            self.cache.crop(length - len(self.ids))
            del self.ids[length:]

    def _tensor(self, ids: Sequence[int]) -> Tensor:
        return torch.tensor([list(ids)], device=self._device)


def _common_prefix(a: Sequence[int], b: Sequence[int]) -> int:
    """Length of the longest common prefix."""
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(a, b, strict=False)))
