"""Judge: one sequence's drafts before its guider, chunk by chunk."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from engine.guider.alignment import Aligned
from engine.guider.pair import Pair
from engine.guider.reader import Reads
from engine.guider.rule import Rule, rank
from engine.guider.same import Spelt

RANKS = 5  # ranks told apart; lower ones are all RANKS


@dataclass(frozen=True)
class Heard:
    """What the guider said of a chunk, token by token of its own, all [m] from `spelt.first` on.

    `ids` its tokens, `log_own` the logarithms of their probabilities, `rank` their places (at
    most RANKS), `top` and `top_p` its first choice, `ok` the rule's flags; `log_p` [m, V] its
    distributions.
    """

    spelt: Aligned | Spelt
    ids: NDArray[np.int64]
    log_own: NDArray[np.float64]
    rank: NDArray[np.int64]
    top: NDArray[np.int64]
    top_p: NDArray[np.float64]
    ok: NDArray[np.bool_]
    log_p: Tensor

    @property
    def judged(self) -> NDArray[np.bool_]:
        """Which of the tokens spell masked positions, [m]."""
        return self.spelt.judged[self.spelt.first :]

    def spans(self) -> NDArray[np.int64]:
        """The tokens [start, end), counted from 0, that spell each decidable position, [d, 2]."""
        return self.spelt.covers() - self.spelt.first


@dataclass(frozen=True)
class Ruling:
    """How many masked positions of a chunk are accepted; `heard` is None: nothing was judged."""

    accepted: int
    straddle_loss: int
    heard: Heard | None


class Judge:
    """A guider's reader with a rule; `prompt` are the guider's ids before the answer."""

    def __init__(self, reader: Reads, prompt: Sequence[int], pair: Pair, rule: Rule) -> None:
        self.reader, self.pair, self.rule = reader, pair, rule
        self._prompt = list(prompt)

    def rule_on(
        self,
        prefix: Sequence[int],
        draft: Sequence[int],
        masked: Sequence[bool],
        sure: Sequence[float],
        most: int,
    ) -> Ruling:
        """Judge a draft after the answer's ids `prefix`, of which at most `most` are accepted.

        `draft` begins with a masked position; `masked` says which of it are, `sure` is the largest
        probability that the drafting model gives any token there.
        """
        spelt = self.pair.spell(prefix, draft, masked)
        if not spelt.judged.any():
            return Ruling(0, 0, None)
        known = len(self._prompt) + spelt.first
        logits = self.reader.read([*self._prompt, *spelt.ids], known)
        heard = self._hear(spelt, self.pair.distribution(logits), sure)
        found = spelt.accept(heard.ok, most)
        return Ruling(found.k, found.straddle_loss, heard)

    def keep(self, prefix: Sequence[int]) -> None:
        """Crop the cache to what stays true of the answer's ids `prefix`, but for the last.

        With different vocabularies the next read does so, since only it knows the next spelling.
        """
        if self.pair.shared:
            self.reader.keep([*self._prompt, *prefix])

    def _hear(self, spelt: Aligned | Spelt, log_p: Tensor, sure: Sequence[float]) -> Heard:
        ids = torch.tensor(spelt.ids[spelt.first :], device=log_p.device)
        if spelt.stops:
            ids[-1] = self.pair.guider_stops[0]
        top_p, top = log_p.max(1)
        own = log_p.gather(1, ids[:, None])[:, 0]
        ok = self.rule.accepts(ids, log_p, self._surest(spelt, sure, len(ids)).to(log_p))
        numbers = torch.stack((own, top_p.exp())).double().cpu().numpy()
        whole = torch.stack((ids, rank(ids, log_p).clamp_max(RANKS), top, ok.long())).cpu().numpy()
        return Heard(
            spelt, whole[0], numbers[0], whole[1], whole[2], numbers[1], whole[3] > 0, log_p
        )

    @staticmethod
    def _surest(spelt: Aligned | Spelt, sure: Sequence[float], count: int) -> Tensor:
        """The model's largest probability for each guider token: where the token begins."""
        out = torch.ones(count, dtype=torch.float64)
        spans = (spelt.covers() - spelt.first).tolist()
        for (start, end), value in reversed(list(zip(spans, sure, strict=False))):
            out[max(start, 0) : end] = value
        return out
