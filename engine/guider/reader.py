"""Reader: one text read by a guider; its keys and values are kept and only ever cropped."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import astuple, dataclass
from itertools import takewhile
from typing import Protocol

import torch
from torch import Tensor
from transformers import DynamicCache

from engine.clock import now
from engine.guider.guider import Guider


@dataclass
class Cost:
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

    def __add__(self, other: Cost) -> Cost:
        """Both together."""
        return Cost(*(a + b for a, b in zip(astuple(self), astuple(other), strict=True)))


class Reads(Protocol):
    """What the judge asks of a guider."""

    def read(self, ids: Sequence[int], known: int) -> Tensor:
        """Logits [len(ids) - known, V]: of each of `ids[known:]` after those before it."""

    def keep(self, ids: Sequence[int]) -> None:
        """Forget what does not belong to `ids[:-1]`."""

    def take(self) -> Cost:
        """What was spent since this was last asked."""

    def held(self) -> int:
        """Bytes of keys and values at most."""


class Reader:
    """Reads with one cache object: before a read it holds ids of which the last is fed again.

    `ids` are those whose keys and values are held. The first read of a text computes the tokens
    before its last known one in a forward of their own, the prefill, which gives no logits.
    """

    def __init__(self, guider: Guider) -> None:
        self._guider = guider
        self.cache = DynamicCache()
        self.ids: list[int] = []
        self._cost = Cost()
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

    def take(self) -> Cost:
        """See Reads."""
        spent, self._cost = self._cost, Cost()
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
