"""Verification of drafts by a guider (FlashDLM, arXiv 2505.21467, Algorithm 1 and appendix C.4).

`AcceptanceRule` decides about single tokens, `Verifier` about one chunk of a sequence's draft, and
`verify_draft` about the draft, chunk after chunk.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from engine.guider.alignment import AlignedDraft
from engine.guider.model import GuiderReader
from engine.guider.vocabularies import VocabularyPair

RULES = ("top1", "topk", "rel", "rel_dlm")
MAX_RANK = 5  # recorded ranks are clamped to this


@dataclass(frozen=True)
class AcceptanceRule:
    """When a guider with the distribution p accepts a token d drafted by a model with p_f.

    `top1`: d is the most probable token. `topk`: d is among the `k` most probable. `rel`: topk,
    and p(d) >= tau max p (the release's topk_relative). `rel_dlm`: max p_f > tau max p, whatever d
    is, as in the appendix, but on probabilities, since logits of two models are not comparable.
    """

    name: str
    k: int
    tau: float

    def accepts(self, drafted: Tensor, log_p: Tensor, max_p_f: Tensor) -> Tensor:
        """Decisions [m] about tokens `drafted` [m], given log p [m, V] and max p_f [m]."""
        best = log_p.max(1).values
        if self.name == "rel_dlm":
            return max_p_f.to(best) > self.tau * best.exp()
        ranks = token_ranks(drafted, log_p)
        if self.name == "top1":
            return ranks == 0
        among = ranks < self.k
        if self.name == "topk":
            return among
        own = log_p.gather(1, drafted[:, None])[:, 0]
        return among & ((own - best).exp() >= self.tau)


def token_ranks(tokens: Tensor, log_p: Tensor) -> Tensor:
    """Rank [m] of each token in its distribution, from 0; ties go to the lower id."""
    own = log_p.gather(1, tokens[:, None])
    ids = torch.arange(log_p.shape[1], device=log_p.device)
    return ((log_p > own) | ((log_p == own) & (ids < tokens[:, None]))).sum(1)


@dataclass(frozen=True)
class Verification:
    """The guider's results for the tokens `ids` of a chunk from `aligned.first` on, [m] each.

    `token_log_p` are their log-probabilities and `ranks` their ranks, at most MAX_RANK; `top_ids`
    and `top_p` are the most probable tokens; `ok` are the rule's decisions, `log_p` [m, V] the
    guider's distributions.
    """

    aligned: AlignedDraft
    ids: NDArray[np.int64]
    token_log_p: NDArray[np.float64]
    ranks: NDArray[np.int64]
    top_ids: NDArray[np.int64]
    top_p: NDArray[np.float64]
    ok: NDArray[np.bool_]
    log_p: Tensor


@dataclass(frozen=True)
class Verdict:
    """Accepted masked positions of a chunk; `verification` is None if nothing was verifiable."""

    accepted: int
    straddle_loss: int
    verification: Verification | None


@dataclass(frozen=True)
class Verifier:
    """Verifies one sequence's drafts; `prompt` are the guider's ids before the answer."""

    reader: GuiderReader
    prompt: Sequence[int]
    vocabularies: VocabularyPair
    rule: AcceptanceRule

    def verify(
        self,
        response: Sequence[int],
        draft: Sequence[int],
        masked: Sequence[bool],
        max_p_f: Sequence[float],
        most: int,
    ) -> Verdict:
        """Verify a draft after the answer's ids `response`; accept at most `most` positions.

        `draft` begins with a masked position and `masked` marks its masked positions; `max_p_f` is
        the largest probability of the drafting model at each. Raises RuntimeError if the guider's
        logits are not finite numbers.
        """
        aligned = self.vocabularies.align(response, draft, masked)
        if not aligned.to_verify.any():
            return Verdict(0, 0, None)
        known = len(self.prompt) + aligned.first
        logits = self.reader.read([*self.prompt, *aligned.ids], known)
        found = self._verification(aligned, self.vocabularies.guider_log_probs(logits), max_p_f)
        acceptance = aligned.accept(found.ok, most)
        return Verdict(acceptance.count, acceptance.straddle_loss, found)

    def crop_cache(self, response: Sequence[int]) -> None:
        """Crop the guider's cache to the answer's ids `response` without the last one.

        If the vocabularies differ, the next read crops instead, since the tokens that spell the
        response are only known then.
        """
        if self.vocabularies.shared:
            self.reader.crop([*self.prompt, *response])

    def _verification(
        self, aligned: AlignedDraft, log_p: Tensor, max_p_f: Sequence[float]
    ) -> Verification:
        ids = torch.tensor(aligned.ids[aligned.first :], device=log_p.device)
        top_p, top = log_p.max(1)
        own = log_p.gather(1, ids[:, None])[:, 0]
        ok = self.rule.accepts(ids, log_p, _by_guider_token(aligned, max_p_f, len(ids)).to(log_p))
        ranks = token_ranks(ids, log_p).clamp_max(MAX_RANK)
        reals = torch.stack((own, top_p.exp())).double().cpu().numpy()
        if np.isnan(reals).any():
            raise RuntimeError("the guider's logits are not finite numbers; choose another guider")
        whole = torch.stack((ids, ranks, top, ok.long())).cpu().numpy()
        return Verification(
            aligned, whole[0], reals[0], whole[1], whole[2], reals[1], whole[3] > 0, log_p
        )


def _by_guider_token(aligned: AlignedDraft, values: Sequence[float], count: int) -> Tensor:
    """The value [count] of the draft position in which each guider token begins."""
    out = torch.ones(count, dtype=torch.float64)
    spans = aligned.position_spans().tolist()
    for (start, end), value in reversed(list(zip(spans, values, strict=False))):
        out[max(start, 0) : end] = value
    return out


@dataclass(frozen=True)
class Draft:
    """The proposed tokens `ids` [n] at the leading masked positions [n] of a sequence.

    `p` [n] are their probabilities by the drafting model, `max_p` [n] the largest of any token.
    `canvas` [T] and `masked` [T] are the ids and masks before the step.
    """

    positions: NDArray[np.int64]
    ids: NDArray[np.int64]
    p: NDArray[np.float64]
    max_p: NDArray[np.float64]
    canvas: NDArray[np.int64]
    masked: NDArray[np.bool_]
    answer_start: int

    def chunk(self, begin: int, size: int) -> tuple[list[int], list[int], list[bool], list[float]]:
        """The first four arguments of Verifier.verify for `size` masks from mask `begin` on.

        Known tokens between the masks are included, with a `max_p` of 1.
        """
        part = slice(begin, begin + size)
        filled, max_p = self.canvas.copy(), np.ones(len(self.canvas))
        filled[self.positions], max_p[self.positions] = self.ids, self.max_p
        first, last = self.positions[begin], self.positions[part][-1]
        span = slice(first, last + 1)
        return (
            filled[self.answer_start : first].tolist(),
            filled[span].tolist(),
            self.masked[span].tolist(),
            max_p[span].tolist(),
        )

    def known_prefix(self, ids: NDArray[np.int64]) -> list[int]:
        """The answer up to its first mask once `ids` fill the first masks."""
        filled, masked = self.canvas.copy(), self.masked.copy()
        filled[self.positions[: len(ids)]] = ids
        masked[self.positions[: len(ids)]] = False
        left = np.flatnonzero(masked)
        return filled[self.answer_start : left[0] if len(left) else None].tolist()


@dataclass(frozen=True)
class VerifiedDraft:
    """The tokens `ids` for the first masks of a draft, of which `accepted` are accepted drafts.

    `stopped` says that the last of `ids` is a stop token. `verdicts` holds the index of the first
    mask of each chunk and its verdict.
    """

    draft: Draft
    ids: NDArray[np.int64]
    accepted: int
    stopped: bool
    verdicts: tuple[tuple[int, Verdict], ...]


def verify_draft(
    verifier: Verifier, draft: Draft, block: int, multi_chunk: bool, fallback: str
) -> VerifiedDraft:
    """Verify a draft in chunks of `block` masks.

    With `multi_chunk`, the next chunk follows each chunk that is accepted in full. If nothing is
    accepted, one token is committed: that of the draft (`fallback` dlm) or of the guider (ar).
    """
    pair, verdicts, accepted = verifier.vocabularies, [], 0
    while True:
        begin = accepted
        verdict = verifier.verify(*draft.chunk(begin, block + pair.lookahead), most=block)
        verdicts.append((begin, verdict))
        accepted += verdict.accepted
        ended = accepted > 0 and draft.ids[accepted - 1] in pair.stop_ids
        if not multi_chunk or verdict.accepted < block or ended or accepted == len(draft.ids):
            break
    ids = draft.ids[: max(accepted, 1)].copy()
    if accepted == 0 and fallback == "ar":
        verification = verdicts[0][1].verification
        assert verification is not None, "with a shared vocabulary every draft is verified"
        top = int(verification.top_ids[0])
        ids[0] = pair.stop_ids[0] if top == pair.guider_stop_ids[0] else top
    verifier.crop_cache(draft.known_prefix(ids))
    return VerifiedDraft(draft, ids, accepted, bool(ids[-1] in pair.stop_ids), tuple(verdicts))
