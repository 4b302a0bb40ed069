"""Report: one step of guidance as an event, put together outside the run's clocks."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from engine.core.events import GuidedStep, Verdicts
from engine.guider.byte_alignment import AlignedDraft
from engine.guider.match import RunGuider
from engine.guider.model import GuiderCost
from engine.guider.verification import Verification, VerifiedDraft
from engine.guider.vocabularies import SharedDraft


@dataclass(frozen=True)
class _Chunk:
    """A chunk as it is reported: masks from `begin`, so many of them, so many guider tokens."""

    begin: int
    masks: int
    tokens: int
    heard: Verification


@dataclass(frozen=True)
class Report:
    """What is left of a step: the outcome of sequence 0, the cost of all, and the logits.

    `logits` [n, V] belong to the draft's masks. `settled` is None where sequence 0 drafted nothing.
    """

    settled: VerifiedDraft | None
    cost: GuiderCost
    logits: Tensor | None

    def written(self, guiding: RunGuider, detail: bool) -> GuidedStep:
        """The event; with the verdicts token by token where `detail`."""
        settled = self.settled
        chunks = [] if settled is None else _chunks(settled, guiding)
        judged = [chunk.heard.judged[: chunk.tokens] for chunk in chunks]
        log_p, rank = (
            _joined(
                getattr(chunk.heard, name)[: chunk.tokens][flags]
                for chunk, flags in zip(chunks, judged, strict=True)
            )
            for name in ("log_own", "rank")
        )
        verdicts = None
        if detail and settled is not None:
            verdicts = _verdicts(guiding, settled, chunks, self.logits)
        return GuidedStep(
            drafted=sum(chunk.masks for chunk in chunks),
            accepted=settled.k if settled else 0,
            judged=len(rank),
            top1=int((rank < 1).sum()),
            top2=int((rank < 2).sum()),
            top5=int((rank < 5).sum()),
            nll=float(-log_p.mean()) if len(log_p) else float("nan"),
            fell_back=settled is not None and settled.k == 0,
            stopped=settled is not None and settled.stopped,
            straddle_loss=settled.verdicts[-1][1].straddle_loss if settled else 0,
            verdicts=verdicts,
            pieces={} if verdicts is None else _pieces(guiding, verdicts),
            **asdict(self.cost),
        )


def _chunks(settled: VerifiedDraft, guiding: RunGuider) -> list[_Chunk]:
    """The chunks that were judged; what a later one judged again counts there."""
    found, draft = [], settled.draft
    begins = [begin for begin, _ in settled.verdicts]
    size = len(draft.positions)
    for number, (begin, ruling) in enumerate(settled.verdicts):
        if ruling.heard is None:
            continue
        heard, last = ruling.heard, number + 1 == len(begins)
        flags = np.asarray(heard.spelt.masked)
        masks = begins[number + 1] - begin if not last else int(flags.sum())
        ends = np.flatnonzero(np.isin(draft.ids[begin : begin + masks], guiding.pair.stops))
        masks = min(masks, int(ends[0]) + 1) if len(ends) else masks
        tokens = len(heard.ids)
        if not last:
            tokens = int(heard.spans()[_offsets(draft.positions, begin, masks)[-1], 1])
        assert begin + masks <= size, "a chunk lies within its draft"
        found.append(_Chunk(begin, masks, tokens, heard))
    return found


def _offsets(positions: NDArray[np.int64], begin: int, masks: int) -> NDArray[np.int64]:
    """Places [masks] in the chunk's draft of its masked positions."""
    return positions[begin : begin + masks] - positions[begin]


def _verdicts(
    guiding: RunGuider, settled: VerifiedDraft, chunks: Sequence[_Chunk], logits: Tensor | None
) -> Verdicts:
    """The draft token by token, and the guider's tokens."""
    draft = settled.draft
    which = _joined(np.arange(c.begin, c.begin + c.masks) for c in chunks).astype(np.int64)
    base = _start(guiding, chunks[0].heard.spelt) if chunks else 0
    rows = [_draft_rows(guiding, draft.positions, chunk) for chunk in chunks]
    spoken = [_guider_rows(guiding, chunk) for chunk in chunks]
    ends, p_g, ok = (_joined(row[i] for row in rows) for i in range(3))
    guider_ends, ids, p, fine, rank, top, top_p = (
        _joined(row[i] for row in spoken) for i in range(7)
    )
    return Verdicts(
        positions=draft.positions[which].astype(np.int32),
        ids=draft.ids[which].astype(np.int32),
        ends=(ends - base).astype(np.int32),
        p_f=draft.p[which].clip(0, 1).astype(np.float32),
        p_g=p_g.astype(np.float32),
        ok=ok.astype(bool),
        kl=_divergences(guiding, draft.positions, chunks, logits),
        guider_ids=ids.astype(np.int32),
        guider_ends=(guider_ends - base).astype(np.int32),
        guider_p=p.astype(np.float32),
        guider_ok=fine.astype(bool),
        guider_rank=rank.astype(np.uint8),
        top_ids=top.astype(np.int32),
        top_p=top_p.astype(np.float32),
    )


def _draft_rows(
    guiding: RunGuider, positions: NDArray[np.int64], chunk: _Chunk
) -> tuple[NDArray, NDArray, NDArray]:
    """Of each mask: the byte where it ends, the guider's probability of it, the rule's flag."""
    spans, heard = chunk.heard.spans(), chunk.heard
    ends = _draft_ends(guiding, heard.spelt)
    p_g, ok = np.full(chunk.masks, np.nan), np.zeros(chunk.masks, bool)
    offsets = _offsets(positions, chunk.begin, chunk.masks)
    for row, offset in enumerate(offsets):
        if offset < len(spans):
            lo, hi = spans[offset]
            p_g[row], ok[row] = np.exp(heard.log_own[lo:hi].sum()), heard.ok[lo:hi].all()
    return ends[np.minimum(offsets, len(ends) - 1)], p_g, ok


def _guider_rows(guiding: RunGuider, chunk: _Chunk) -> tuple[NDArray, ...]:
    """Of each guider token that spells a mask: end, id, probability, flag, rank, first choice."""
    heard = chunk.heard
    kept = np.flatnonzero(heard.judged[: chunk.tokens])
    ends = _token_ends(guiding, heard.spelt)[heard.spelt.first :]
    columns = (ends, heard.ids, np.exp(heard.log_own), heard.ok, heard.rank, heard.top, heard.top_p)
    return tuple(column[kept] for column in columns)


def _divergences(
    guiding: RunGuider,
    positions: NDArray[np.int64],
    chunks: Sequence[_Chunk],
    logits: Tensor | None,
) -> NDArray[np.float32]:
    """KL of each mask, NaN where it cannot be told."""
    found = []
    for chunk in chunks:
        if logits is None or not guiding.pair.shared:
            found.append(np.full(chunk.masks, np.nan))
            continue
        rows = torch.from_numpy(_offsets(positions, chunk.begin, chunk.masks))
        theirs = chunk.heard.log_p[rows.to(chunk.heard.log_p.device)]
        ours = logits[chunk.begin : chunk.begin + chunk.masks]
        found.append(guiding.pair.divergence(ours, theirs).double().cpu().numpy())
    return _joined(found).astype(np.float32)


def _token_ends(guiding: RunGuider, spelt: AlignedDraft | SharedDraft) -> NDArray[np.int64]:
    """Where each of the guider's tokens ends, in bytes of the response; a stop has none."""
    if isinstance(spelt, AlignedDraft):
        return spelt.ends
    sizes = [len(guiding.piece(token) or b"") for token in spelt.ids]
    return np.cumsum(sizes)


def _draft_ends(guiding: RunGuider, spelt: AlignedDraft | SharedDraft) -> NDArray[np.int64]:
    """Where each of the draft's positions ends; the last known end for those that have none."""
    if isinstance(spelt, AlignedDraft):
        return np.append(spelt.draft_ends, [spelt.prefix, *spelt.draft_ends][-1])
    return _token_ends(guiding, spelt)[spelt.first :]


def _start(guiding: RunGuider, spelt: AlignedDraft | SharedDraft) -> int:
    """Bytes of the response before the draft."""
    if isinstance(spelt, AlignedDraft):
        return spelt.prefix
    return int(_token_ends(guiding, spelt)[spelt.first - 1]) if spelt.first else 0


def _pieces(guiding: RunGuider, verdicts: Verdicts) -> dict[int, bytes]:
    """The bytes of every guider token that the verdicts name."""
    ids = np.unique(np.append(verdicts.guider_ids, verdicts.top_ids)).tolist()
    return {i: guiding.name(i) for i in ids}


def _joined(parts: Iterable[NDArray]) -> NDArray:
    """One after the other; empty where there is none."""
    return np.concatenate([*parts, np.empty(0)])
