"""GuidanceReport: the guider's results of one step as an event, built outside the timed parts."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from engine.core.events import GuidedStep, Verdicts
from engine.guider.alignment import AlignedDraft
from engine.guider.model import GuiderCost
from engine.guider.run_guider import RunGuider
from engine.guider.verification import Verification, VerifiedDraft


@dataclass(frozen=True)
class GuidanceReport:
    """The results of a step: the verified draft of sequence 0, the cost of all, and the logits.

    `logits` [n, V] belong to the draft's masks. `verified` is None if sequence 0 had no draft.
    """

    verified: VerifiedDraft | None
    cost: GuiderCost
    logits: Tensor | None

    def event(self, run_guider: RunGuider, detail: bool) -> GuidedStep:
        """The event; with `detail`, it includes the verdicts token by token."""
        verified = self.verified
        chunks = [] if verified is None else _report_chunks(verified, run_guider)
        log_p = _concatenate(chunk.verified_tokens(chunk.results.token_log_p) for chunk in chunks)
        rank = _concatenate(chunk.verified_tokens(chunk.results.ranks) for chunk in chunks)
        verdicts = None
        if detail and verified is not None:
            verdicts = _verdicts(run_guider, verified, chunks, self.logits)
        return GuidedStep(
            drafted=sum(chunk.masks for chunk in chunks),
            accepted=verified.accepted if verified else 0,
            judged=len(rank),
            top1=int((rank < 1).sum()),
            top2=int((rank < 2).sum()),
            top5=int((rank < 5).sum()),
            nll=float(-log_p.mean()) if len(log_p) else float("nan"),
            fell_back=verified is not None and verified.accepted == 0,
            stopped=verified is not None and verified.stopped,
            straddle_loss=verified.verdicts[-1][1].straddle_loss if verified else 0,
            verdicts=verdicts,
            pieces={} if verdicts is None else _token_labels(run_guider, verdicts),
            **asdict(self.cost),
        )


@dataclass(frozen=True)
class _Chunk:
    """The reported part of a chunk: `masks` masks from mask `begin` on, and `tokens` tokens."""

    begin: int
    masks: int
    tokens: int
    results: Verification

    def verified_tokens(self, values: NDArray) -> NDArray:
        """The values of the reported tokens that overlap a masked position."""
        return values[: self.tokens][self.results.aligned.to_verify[: self.tokens]]

    def offsets(self, positions: NDArray[np.int64]) -> NDArray[np.int64]:
        """Indices [masks] of the masked positions in the chunk's draft."""
        return positions[self.begin : self.begin + self.masks] - positions[self.begin]


def _report_chunks(verified: VerifiedDraft, run_guider: RunGuider) -> list[_Chunk]:
    """The verified chunks; a token that is verified again in the next chunk is reported there."""
    chunks, draft = [], verified.draft
    begins = [begin for begin, _ in verified.verdicts]
    for number, (begin, verdict) in enumerate(verified.verdicts):
        if verdict.verification is None:
            continue
        results, last = verdict.verification, number + 1 == len(begins)
        masks = int(results.aligned.masked.sum()) if last else begins[number + 1] - begin
        stops = np.isin(draft.ids[begin : begin + masks], run_guider.vocabularies.stop_ids)
        masks = min(masks, int(stops.argmax()) + 1) if stops.any() else masks
        assert begin + masks <= len(draft.positions), "a chunk lies within its draft"
        tokens = len(results.ids)
        if not last:
            end = draft.positions[begin + masks - 1] - draft.positions[begin]
            tokens = int(results.aligned.position_spans()[end, 1])
        chunks.append(_Chunk(begin, masks, tokens, results))
    return chunks


def _verdicts(
    run_guider: RunGuider, verified: VerifiedDraft, chunks: Sequence[_Chunk], logits: Tensor | None
) -> Verdicts:
    """The draft token by token, and the guider's tokens."""
    draft = verified.draft
    masks = _concatenate(np.arange(c.begin, c.begin + c.masks) for c in chunks).astype(np.int64)
    start = 0
    if chunks:
        aligned = chunks[0].results.aligned
        start = int(_byte_offsets(run_guider, aligned, np.array(aligned.response_size)))
    draft_rows = [_draft_rows(run_guider, draft.positions, chunk) for chunk in chunks]
    guider_rows = [_guider_rows(run_guider, chunk) for chunk in chunks]
    ends, p_g, ok = (_concatenate(row[i] for row in draft_rows) for i in range(3))
    guider_ends, ids, p, guider_ok, rank, top, top_p = (
        _concatenate(row[i] for row in guider_rows) for i in range(7)
    )
    return Verdicts(
        positions=draft.positions[masks].astype(np.int32),
        ids=draft.ids[masks].astype(np.int32),
        ends=(ends - start).astype(np.int32),
        p_f=draft.p[masks].clip(0, 1).astype(np.float32),
        p_g=p_g.astype(np.float32),
        ok=ok.astype(bool),
        kl=_divergences(run_guider, draft.positions, chunks, logits),
        guider_ids=ids.astype(np.int32),
        guider_ends=(guider_ends - start).astype(np.int32),
        guider_p=p.astype(np.float32),
        guider_ok=guider_ok.astype(bool),
        guider_rank=rank.astype(np.uint8),
        top_ids=top.astype(np.int32),
        top_p=top_p.astype(np.float32),
    )


def _draft_rows(
    run_guider: RunGuider, positions: NDArray[np.int64], chunk: _Chunk
) -> tuple[NDArray, NDArray, NDArray]:
    """For each mask: the byte where it ends, the guider's probability of it, the rule's decision.

    A position without bytes ends where the one before it ends.
    """
    results, aligned = chunk.results, chunk.results.aligned
    spans, offsets = aligned.position_spans(), chunk.offsets(positions)
    ends = np.append(aligned.position_ends, [aligned.response_size, *aligned.position_ends][-1])
    p_g, ok = np.full(chunk.masks, np.nan), np.zeros(chunk.masks, bool)
    for row, offset in enumerate(offsets):
        if offset < len(spans):
            lo, hi = spans[offset]
            p_g[row], ok[row] = np.exp(results.token_log_p[lo:hi].sum()), results.ok[lo:hi].all()
    ends = ends[np.minimum(offsets, len(ends) - 1)]
    return _byte_offsets(run_guider, aligned, ends), p_g, ok


def _guider_rows(run_guider: RunGuider, chunk: _Chunk) -> tuple[NDArray, ...]:
    """For each token that overlaps a mask: end, id, probability, decision, rank, first choice."""
    results, aligned = chunk.results, chunk.results.aligned
    ends = _byte_offsets(run_guider, aligned, aligned.token_ends)[aligned.first :]
    columns = (
        ends, results.ids, np.exp(results.token_log_p), results.ok, results.ranks,
        results.top_ids, results.top_p,
    )  # fmt: skip
    return tuple(map(chunk.verified_tokens, columns))


def _divergences(
    run_guider: RunGuider,
    positions: NDArray[np.int64],
    chunks: Sequence[_Chunk],
    logits: Tensor | None,
) -> NDArray[np.float32]:
    """KL divergence of each mask, NaN if the vocabularies differ."""
    values = []
    for chunk in chunks:
        if logits is None or not run_guider.vocabularies.shared:
            values.append(np.full(chunk.masks, np.nan))
            continue
        log_p = chunk.results.log_p
        theirs = log_p[torch.from_numpy(chunk.offsets(positions)).to(log_p.device)]
        ours = logits[chunk.begin : chunk.begin + chunk.masks]
        kl = run_guider.vocabularies.kl_divergence(ours, theirs)
        values.append(kl.double().cpu().numpy())
    return _concatenate(values).astype(np.float32)


def _byte_offsets(
    run_guider: RunGuider, aligned: AlignedDraft, offsets: NDArray[np.int64]
) -> NDArray[np.int64]:
    """Offsets of an aligned draft in bytes; those of a shared vocabulary count tokens."""
    if not run_guider.vocabularies.shared:
        return offsets
    sizes = [len(run_guider.token_bytes(token)) for token in aligned.ids]
    return np.append(0, np.cumsum(sizes, dtype=np.int64))[offsets]


def _token_labels(run_guider: RunGuider, verdicts: Verdicts) -> dict[int, bytes]:
    """The bytes to show for every guider token in the verdicts."""
    ids = np.unique(np.append(verdicts.guider_ids, verdicts.top_ids)).tolist()
    return {i: run_guider.token_label(i) for i in ids}


def _concatenate(parts: Iterable[NDArray]) -> NDArray:
    """The parts one after the other; empty if there are none."""
    return np.concatenate([*parts, np.empty(0)])
