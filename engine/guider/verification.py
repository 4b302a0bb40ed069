"""Rule: when a guider agrees to a token of a draft (FlashDLM, Algorithm 1 and appendix C.4).

Judge: one sequence's drafts before its guider, chunk by chunk.

settle: how many tokens of one sequence's draft are committed, chunk after chunk."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from engine.guider.byte_alignment import AlignedDraft
from engine.guider.model import GuiderReader
from engine.guider.vocabularies import SharedDraft, VocabularyPair

RULES = ("top1", "topk", "rel", "rel_dlm")


@dataclass(frozen=True)
class Rule:
    """One of RULES for the guider's distribution p, a drafted token d and a model's p_f.

    `top1`: d is the likeliest. `topk`: d is among the `k` likeliest. `rel`: that, and
    p(d) >= tau max p (the release's topk_relative). `rel_dlm`: max p_f > tau max p, whatever d
    is, as the appendix has it, but on probabilities, since logits of two models do not compare.
    """

    name: str
    k: int
    tau: float

    def accepts(self, drafted: Tensor, log_p: Tensor, sure: Tensor) -> Tensor:
        """Flags [m] for tokens `drafted` [m] under `log_p` [m, V]; `sure` [m] is max p_f."""
        best = log_p.max(1).values
        if self.name == "rel_dlm":
            return sure.to(best) > self.tau * best.exp()
        order = rank(drafted, log_p)
        if self.name == "top1":
            return order == 0
        among = order < self.k
        if self.name == "topk":
            return among
        own = log_p.gather(1, drafted[:, None])[:, 0]
        return among & ((own - best).exp() >= self.tau)


def rank(drafted: Tensor, log_p: Tensor) -> Tensor:
    """Place [m] of each token in the order of its distribution, 0 is first; ties: lower id."""
    own = log_p.gather(1, drafted[:, None])
    ids = torch.arange(log_p.shape[1], device=log_p.device)
    return ((log_p > own) | ((log_p == own) & (ids < drafted[:, None]))).sum(1)


RANKS = 5  # ranks told apart; lower ones are all RANKS


@dataclass(frozen=True)
class Verification:
    """What the guider said of a chunk, token by token of its own, all [m] from `spelt.first` on.

    `ids` its tokens, `log_own` the logarithms of their probabilities, `rank` their places (at
    most RANKS), `top` and `top_p` its first choice, `ok` the rule's flags; `log_p` [m, V] its
    distributions.
    """

    spelt: AlignedDraft | SharedDraft
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
class Verdict:
    """How many masked positions of a chunk are accepted; `heard` is None: nothing was judged."""

    accepted: int
    straddle_loss: int
    heard: Verification | None


class Verifier:
    """A guider's reader with a rule; `prompt` are the guider's ids before the answer."""

    def __init__(
        self, reader: GuiderReader, prompt: Sequence[int], pair: VocabularyPair, rule: Rule
    ) -> None:
        self.reader, self.pair, self.rule = reader, pair, rule
        self._prompt = list(prompt)

    def rule_on(
        self,
        prefix: Sequence[int],
        draft: Sequence[int],
        masked: Sequence[bool],
        sure: Sequence[float],
        most: int,
    ) -> Verdict:
        """Judge a draft after the answer's ids `prefix`, of which at most `most` are accepted.

        `draft` begins with a masked position; `masked` says which of it are, `sure` is the largest
        probability that the drafting model gives any token there.
        """
        spelt = self.pair.spell(prefix, draft, masked)
        if not spelt.judged.any():
            return Verdict(0, 0, None)
        known = len(self._prompt) + spelt.first
        logits = self.reader.read([*self._prompt, *spelt.ids], known)
        heard = self._hear(spelt, self.pair.distribution(logits), sure)
        found = spelt.accept(heard.ok, most)
        return Verdict(found.k, found.straddle_loss, heard)

    def keep(self, prefix: Sequence[int]) -> None:
        """Crop the cache to what stays true of the answer's ids `prefix`, but for the last.

        With different vocabularies the next read does so, since only it knows the next spelling.
        """
        if self.pair.shared:
            self.reader.keep([*self._prompt, *prefix])

    def _hear(
        self, spelt: AlignedDraft | SharedDraft, log_p: Tensor, sure: Sequence[float]
    ) -> Verification:
        ids = torch.tensor(spelt.ids[spelt.first :], device=log_p.device)
        if spelt.stops:
            ids[-1] = self.pair.guider_stops[0]
        top_p, top = log_p.max(1)
        own = log_p.gather(1, ids[:, None])[:, 0]
        ok = self.rule.accepts(ids, log_p, self._surest(spelt, sure, len(ids)).to(log_p))
        numbers = torch.stack((own, top_p.exp())).double().cpu().numpy()
        whole = torch.stack((ids, rank(ids, log_p).clamp_max(RANKS), top, ok.long())).cpu().numpy()
        return Verification(
            spelt, whole[0], numbers[0], whole[1], whole[2], numbers[1], whole[3] > 0, log_p
        )

    @staticmethod
    def _surest(spelt: AlignedDraft | SharedDraft, sure: Sequence[float], count: int) -> Tensor:
        """The model's largest probability for each guider token: where the token begins."""
        out = torch.ones(count, dtype=torch.float64)
        spans = (spelt.covers() - spelt.first).tolist()
        for (start, end), value in reversed(list(zip(spans, sure, strict=False))):
            out[max(start, 0) : end] = value
        return out


@dataclass(frozen=True)
class Draft:
    """The leading masks of a sequence and what is proposed there.

    `positions` [n] global, ascending; `ids` [n]; `p` [n] their probabilities, `surest` [n] the
    largest of any token; `canvas` [T] ids before the step and `masked` [T] bool; the answer
    begins at `start`.
    """

    positions: NDArray[np.int64]
    ids: NDArray[np.int64]
    p: NDArray[np.float64]
    surest: NDArray[np.float64]
    canvas: NDArray[np.int64]
    masked: NDArray[np.bool_]
    start: int

    def chunk(self, begin: int, size: int) -> tuple[list[int], list[int], list[bool], list[float]]:
        """Answer before mask number `begin`, then of `size` masks from it on: ids, masked, surest.

        Given tokens in between are part of it; their `surest` is 1.
        """
        part = slice(begin, begin + size)
        filled, surest = self.canvas.copy(), np.ones(len(self.canvas))
        filled[self.positions], surest[self.positions] = self.ids, self.surest
        first, last = self.positions[begin], self.positions[part][-1]
        span = slice(first, last + 1)
        return (
            filled[self.start : first].tolist(),
            filled[span].tolist(),
            self.masked[span].tolist(),
            surest[span].tolist(),
        )

    def after(self, ids: NDArray[np.int64]) -> list[int]:
        """The answer's unbroken run of known tokens once the first masks are filled with `ids`."""
        filled, masked = self.canvas.copy(), self.masked.copy()
        filled[self.positions[: len(ids)]] = ids
        masked[self.positions[: len(ids)]] = False
        left = np.flatnonzero(masked)
        return filled[self.start : left[0] if len(left) else None].tolist()


@dataclass(frozen=True)
class VerifiedDraft:
    """What came of a draft: the first masks get `ids`; `k` of them are accepted drafts.

    `verdicts` pair each chunk's first mask with what was said of it.
    """

    draft: Draft
    ids: NDArray[np.int64]
    k: int
    stopped: bool
    verdicts: tuple[tuple[int, Verdict], ...]


def verify_draft(
    judge: Verifier, draft: Draft, block: int, several: bool, fallback: str
) -> VerifiedDraft:
    """Judge a draft in chunks of `block` masks, on to the next while `several` and all is accepted.

    Where nothing is, one token is committed: the draft's (`fallback` dlm) or the guider's (ar).
    """
    pair, verdicts, k = judge.pair, [], 0
    while True:
        begin = k
        ruling = judge.rule_on(*draft.chunk(begin, block + pair.tail), most=block)
        verdicts.append((begin, ruling))
        k += ruling.accepted
        ended = k > 0 and draft.ids[k - 1] in pair.stops
        if not several or ruling.accepted < block or ended or k == len(draft.ids):
            break
    ids = draft.ids[: max(k, 1)].copy()
    if k == 0 and fallback == "ar":
        heard = verdicts[0][1].heard
        assert heard is not None, "with a shared vocabulary every draft is judged"
        own = int(heard.top[0])
        ids[0] = pair.stops[0] if own == pair.guider_stops[0] else own
    judge.keep(draft.after(ids))
    return VerifiedDraft(draft, ids, k, bool(ids[-1] in pair.stops), tuple(verdicts))
