"""Guider: an autoregressive model in memory, with its tokenizer, its stops and its price.

Reader: one text read by a guider; its keys and values are kept and only ever cropped."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import astuple, dataclass
from itertools import takewhile
from pathlib import Path
from typing import Any, Protocol

import torch
from torch import Tensor, nn
from transformers import AutoConfig, AutoModelForCausalLM, DynamicCache, PretrainedConfig
from transformers.utils import logging

from engine.core.device import now
from engine.models.loading.checkpoint import Checkpoint, CheckpointError
from engine.models.tokenizer import Tokenizer

STOP_TOKENS = ("<|eot_id|>", "<|im_end|>", "<|endoftext|>")


@dataclass(frozen=True)
class Guider:
    """A causal language model of `transformers`; `stops` are its ids that end a text.

    `digest` is that of its weights.
    """

    name: str
    model: Any
    tokenizer: Tokenizer
    stops: tuple[int, ...]
    digest: str

    @property
    def rows(self) -> int:
        """Rows of its logits; some may stand for no token."""
        return int(self.model.get_output_embeddings().weight.shape[0])

    @property
    def device(self) -> torch.device:
        """Where it computes."""
        return self.model.device

    @property
    def parameters(self) -> int:
        """Numbers that it has learnt, a tied head counted once."""
        return sum(p.numel() for p in self.model.parameters())

    def weight_bytes(self) -> int:
        """What its weights take."""
        return sum(p.nbytes for p in self.model.parameters())

    def cached_bytes(self, tokens: int) -> int:
        """What keys and values of so many tokens take."""
        return cached_numbers(self.model.config) * tokens * self.model.dtype.itemsize

    def flops(self, fed: int, keys: int, heads: int) -> int:
        """FLOPs of a forward of `fed` tokens over `keys` keys, logits of `heads` of them.

        Matrix products of a dense model alone, as engine.models.flops counts them.
        """
        config, head = self.model.config, self.model.get_output_embeddings()
        linear = sum(
            m.weight.numel()
            for m in self.model.modules()
            if isinstance(m, nn.Linear) and m is not head
        )
        width = config.num_attention_heads * _head_dim(config)
        attention = 4 * fed * keys * width * config.num_hidden_layers
        return 2 * fed * linear + attention + 2 * heads * head.weight.numel()

    def describe(self) -> dict[str, Any]:
        """Plain data for RunStarted."""
        return {
            "name": self.name,
            "vocab_size": self.rows,
            "layers": int(self.model.config.num_hidden_layers),
            "parameters": self.parameters,
            "digest": self.digest,
        }


def _head_dim(config: PretrainedConfig) -> int:
    own = getattr(config, "head_dim", None)
    return int(own or config.hidden_size // config.num_attention_heads)


def cached_numbers(config: PretrainedConfig) -> int:
    """Numbers in the keys and values of one token."""
    return 2 * config.num_hidden_layers * config.num_key_value_heads * _head_dim(config)


def read_config(folder: Path) -> PretrainedConfig:
    """A guider's config; CheckpointError where `transformers` has no model for it."""
    try:
        config = AutoConfig.from_pretrained(folder, local_files_only=True, trust_remote_code=False)
    except Exception as error:  # the library raises bare Exceptions for damaged files
        raise CheckpointError(f"config.json: cannot be read as a guider's ({error})") from None
    if type(config) not in AutoModelForCausalLM._model_mapping:
        raise CheckpointError(
            f"config.json: {config.model_type!r} is no autoregressive model; choose a causal one"
        )
    return config


def count_parameters(config: PretrainedConfig) -> int:
    """Parameters of a model of this config, a tied head counted once; nothing is allocated."""
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(config)
    return sum(p.numel() for p in model.parameters())


def stop_ids(tokenizer: Tokenizer, config: PretrainedConfig) -> tuple[int, ...]:
    """Ids that end a text, by the tokenizer's names and the config; that of a turn first.

    Raises CheckpointError where there is none.
    """
    named = [tokenizer.specials[name] for name in STOP_TOKENS if name in tokenizer.specials]
    given = config.eos_token_id
    also = [] if given is None else [given] if isinstance(given, int) else list(given)
    stops = tuple(dict.fromkeys([*named, *also]))
    if not stops:
        raise CheckpointError("config.json: eos_token_id is missing, and no token ends a text")
    return stops


@contextmanager
def _quiet() -> Iterator[None]:
    """No progress bar of the library's meanwhile; the page has its own."""
    shown = logging.is_progress_bar_enabled()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        if shown:
            logging.enable_progress_bar()


def load_guider(name: str, folder: Path, dtype: torch.dtype, device: torch.device) -> Guider:
    """The guider of a folder: safetensors only, no code of the folder is run.

    Raises CheckpointError naming the file, or the tensors that are missing.
    """
    tokenizer, config = Tokenizer(folder), read_config(folder)
    files = Checkpoint(folder)  # refuses what is no safetensors checkpoint
    try:
        with _quiet():
            loaded: Any = AutoModelForCausalLM.from_pretrained(
                folder, config=config, dtype=dtype, local_files_only=True, use_safetensors=True,
                trust_remote_code=False, output_loading_info=True,
            )  # fmt: skip
    except Exception as error:  # the library raises bare Exceptions for damaged files
        raise CheckpointError(f"model.safetensors: cannot be read ({error})") from None
    model, told = loaded
    wrong = sorted(map(str, [*told["missing_keys"], *told["mismatched_keys"]]))
    if wrong:
        raise CheckpointError(f"model.safetensors: {wrong[0]} is missing or of another shape")
    stops = stop_ids(tokenizer, config)
    return Guider(name, model.to(device).eval(), tokenizer, stops, files.digest())


@dataclass
class GuiderCost:
    """What a guider has spent: forwards over `fed` tokens, `prefilled` before the first of them.

    Milliseconds and FLOPs hold the prefill's part.
    """

    forwards: int = 0
    fed: int = 0
    prefilled: int = 0
    ms: float = 0.0
    prefill_ms: float = 0.0
    flops: int = 0
    prefill_flops: int = 0

    def __add__(self, other: GuiderCost) -> GuiderCost:
        """Both together."""
        return GuiderCost(*(a + b for a, b in zip(astuple(self), astuple(other), strict=True)))


class GuiderReader(Protocol):
    """What the judge asks of a guider."""

    def read(self, ids: Sequence[int], known: int) -> Tensor:
        """Logits [len(ids) - known, V]: of each of `ids[known:]` after those before it."""

    def keep(self, ids: Sequence[int]) -> None:
        """Forget what does not belong to `ids[:-1]`."""

    def take(self) -> GuiderCost:
        """What was spent since this was last asked."""

    def held(self) -> int:
        """Bytes of keys and values at most."""


class CachedReader:
    """Reads with one cache object: before a read it holds ids of which the last is fed again.

    `ids` are those whose keys and values are held. The first read of a text computes the tokens
    before its last known one in a forward of their own, the prefill, which gives no logits.
    """

    def __init__(self, guider: Guider) -> None:
        self._guider = guider
        self.cache = DynamicCache()
        self.ids: list[int] = []
        self._cost = GuiderCost()
        self._most = 0

    @torch.inference_mode()
    def read(self, ids: Sequence[int], known: int) -> Tensor:
        """See Reads; `known` is at least 1, so that something is fed."""
        assert 0 < known < len(ids), "a guider reads on from a token"
        started, held = now(self._guider.device), len(self.ids)
        self._crop(min(_common(self.ids, ids), known - 1))
        if held == 0 and known > 1:
            self._prefill(ids[: known - 1])
        feed, rows = list(ids[len(self.ids) : -1]), len(ids) - known
        logits = self._guider.model(
            input_ids=self._tensor(feed),
            past_key_values=self.cache,
            use_cache=True,
            logits_to_keep=rows,
        ).logits[0]
        self.ids += feed
        self._most = max(self._most, len(self.ids))
        self._cost.forwards += 1
        self._cost.fed += len(feed)
        self._cost.flops += self._guider.flops(len(feed), len(self.ids), rows)
        self._cost.ms += (now(self._guider.device) - started) * 1e3
        return logits

    def keep(self, ids: Sequence[int]) -> None:
        """See Reads."""
        self._crop(_common(self.ids, ids[:-1]))

    def take(self) -> GuiderCost:
        """See Reads."""
        spent, self._cost = self._cost, GuiderCost()
        return spent

    def held(self) -> int:
        """See Reads."""
        return self._guider.cached_bytes(self._most)

    def _prefill(self, ids: Sequence[int]) -> None:
        started, guider = now(self._guider.device), self._guider
        guider.model.base_model(
            input_ids=self._tensor(ids), past_key_values=self.cache, use_cache=True
        )
        self.ids = list(ids)
        spent = guider.flops(len(ids), len(ids), 0)
        self._cost.prefilled += len(ids)
        self._cost.flops += spent
        self._cost.prefill_flops += spent
        self._cost.prefill_ms += (now(guider.device) - started) * 1e3

    def _crop(self, length: int) -> None:
        if length < len(self.ids):
            self.cache.crop(length - len(self.ids))
            del self.ids[length:]

    def _tensor(self, ids: Sequence[int]) -> Tensor:
        return torch.tensor([list(ids)], device=self._guider.device)


def _common(a: Sequence[int], b: Sequence[int]) -> int:
    """Length of the longest common prefix."""
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(a, b, strict=False)))
