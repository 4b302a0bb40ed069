"""Vocabulary: the tokens of a byte-level BPE tokenizer as bytes, and text as its ids.

Alignment: what a guider of another vocabulary says about a draft, byte by byte.

Each step, `ByteAlignment.align` spells the response (R) and the draft (C) in the guider's tokens; the
caller feeds `[*prompt, *aligned.ids]` to the guider, decides for each token from `aligned.first`
on whether the guider agrees with it given the tokens before it, and `AlignedDraft.accept` turns these
flags into the number of masked positions to fill. Pure functions of ids, nothing kept between
steps: equal inputs give equal ids, so a cache of the guider may be reused up to the longest
common prefix (earlier text may be segmented anew when text is added after it).

Use::

    alignment = Alignment(Vocabulary(dlm, info.stop_ids), Vocabulary(guider, guider_stop_ids))
    aligned = alignment.align(answer_ids_before_p0, draft_ids, masked)  # draft of S + TAIL ids
    if aligned.judged.any():  # else k = 0 without a forward
        rows = logits for aligned.ids[aligned.first:]  # of the tokens before each of them
        accepted = aligned.accept(ok, most=S)  # ok: bool [len(aligned.ids) - aligned.first]
        accepted.k, accepted.straddle_loss

A STOP the draft ends with is judged as a class: the caller's flag for the last token
(`aligned.stops`) says whether any of the guider's stop ids is among its choices.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import tokenizers
from numpy.typing import NDArray
from tokenizers import decoders

from engine.models.tokenizer import Tokenizer, byte_alphabet

UNUSED = frozenset((0xC0, 0xC1, *range(0xF5, 0x100)))  # bytes that no UTF-8 text has


class Vocabulary:
    """The ordinary tokens of a tokenizer; specials have no bytes, `stops` form one class.

    The first of `stops` is the one that stands for the class. Raises ValueError where the
    tokenizer is no byte-level BPE or has no token for a byte.
    """

    def __init__(self, tokenizer: Tokenizer, stops: Sequence[int]) -> None:
        self.stops = tuple(stops)
        whole = tokenizer.backend
        if not isinstance(whole.decoder, decoders.ByteLevel):
            raise ValueError(
                "its tokenizer is no byte-level BPE, so its tokens have no bytes to compare; "
                "choose a model with one (Qwen2.5, Llama 3, GPT-2)"
            )
        self._pieces = _spellings(tokenizer)
        self._sizes = np.array([len(piece) for piece in self._pieces], np.int64)
        missing = {*range(256)} - UNUSED - {p[0] for p in self._pieces if len(p) == 1}
        if missing:
            raise ValueError(
                f"its vocabulary has no token for the byte 0x{min(missing):02x}; copy the "
                "tokenizer's files again"
            )
        # Without the added tokens and the normaliser: text comes back byte by byte, whatever it is.
        self._encoder = tokenizers.Tokenizer(whole.model)
        self._encoder.pre_tokenizer = whole.pre_tokenizer

    def spell(self, token: int) -> bytes:
        """Bytes of an ordinary token; none for special, stop and unknown ids."""
        return self._pieces[token] if token < len(self._pieces) else b""

    def sizes(self, ids: Sequence[int]) -> NDArray[np.int64]:
        """How many bytes each of the ids that `encode` gave has."""
        return self._sizes[np.asarray(ids, np.int64)]

    def encode(self, text: str) -> list[int]:
        """Ids of ordinary tokens that spell `text` in UTF-8.

        What looks like a special token is spelt as text; nothing is normalised.
        """
        return self._encoder.encode(text, add_special_tokens=False).ids

    def barred(self, rows: int) -> tuple[int, ...]:
        """Ids below `rows`, those of a model's logits, that are never drafted.

        They have no bytes and are no stop.
        """
        return tuple(i for i in range(rows) if not self.spell(i) and i not in self.stops)


def _spellings(tokenizer: Tokenizer) -> list[bytes]:
    """The bytes of every id up to the last ordinary one; empty for what is no text."""
    alphabet, ordinary = byte_alphabet(), tokenizer.ordinary
    out = [b""] * (max(ordinary.values(), default=-1) + 1)
    for name, i in ordinary.items():
        if all(c in alphabet for c in name):
            out[i] = bytes(alphabet[c] for c in name)
    return out


TAIL = 8  # tokens drafted past the chunk: the last ones are judged on text that is cut short


@dataclass(frozen=True, slots=True)
class Accepted:
    """What the guider's flags come to.

    `k` leading masked positions may be filled with their draft; the guider agreed up to byte
    `reach` of the response, `straddle_loss` bytes more than whole tokens of the draft cover.
    """

    k: int
    reach: int
    straddle_loss: int


@dataclass(frozen=True, slots=True)
class AlignedDraft:
    """A response and a draft in the guider's tokens; offsets are bytes from the response's start.

    `ids` spell R then C, then a stop id where `stops`; token j ends at `ends[j]`. Tokens before
    `first` lie inside R, which has `prefix` bytes. `judged` [len(ids)] marks the tokens that touch
    a masked position: only their flags count. `draft_ends` [m] are the ends of the draft's leading
    positions that have bytes (a STOP and all after it left out), `masked` [n] says which of the
    draft's positions are to be filled.
    """

    ids: tuple[int, ...]
    ends: NDArray[np.int64]
    first: int
    judged: NDArray[np.bool_]
    stops: bool
    prefix: int
    draft_ends: NDArray[np.int64]
    masked: NDArray[np.bool_]

    def accept(self, ok: NDArray[np.bool_], most: int | None = None) -> Accepted:
        """Count the leading masked positions that end where the guider still agrees.

        `ok` [len(ids) - first] says of each token from `first` on whether the guider agrees;
        at most `most` positions are accepted (None: all).
        """
        wrong = np.flatnonzero(self.judged[self.first :] & ~ok)
        agreed = self.first + int(wrong[0]) if len(wrong) else len(self.ids)
        reach = max(self.prefix, int(self.ends[agreed - 1])) if agreed else self.prefix
        whole = int(np.searchsorted(self.draft_ends, reach, "right"))
        loss = reach - (int(self.draft_ends[whole - 1]) if whole else self.prefix)
        if self.stops and agreed == len(self.ids):
            whole += 1
        k = int(self.masked[:whole].sum())
        return Accepted(k if most is None else min(k, most), reach, loss)

    def covers(self) -> NDArray[np.int64]:
        """The guider tokens [start, end) that spell each decidable position: [d, 2], d <= n.

        Two positions may share a token. Undecidable positions (from the first that has no bytes
        or is not whole text) are left out; a STOP has the last token.
        """
        text = self.ends[:-1] if self.stops else self.ends
        spelt = max(self.prefix, int(text[-1])) if len(text) else self.prefix
        ends = self.draft_ends[: np.searchsorted(self.draft_ends, spelt, "right")]
        starts = np.append(self.prefix, ends)[:-1]
        spans = (np.searchsorted(text, starts, "right"), np.searchsorted(text, ends, "left") + 1)
        out = np.stack(spans, 1)
        stop = [[len(text), len(text) + 1]] if self.stops else np.empty((0, 2), np.int64)
        return np.concatenate((out, stop))


class ByteAlignment:
    """Spells text of the draft model's vocabulary in the guider's.

    Text that is no UTF-8 cannot be spelt: a draft is cut before its first character that is
    incomplete or invalid, and before a special token; where the response itself is invalid,
    nothing is judged. A response that ends within a character is judged if the draft completes it.
    """

    def __init__(self, dlm: Vocabulary, guider: Vocabulary) -> None:
        self.dlm, self.guider = dlm, guider

    def align(
        self, prefix: Sequence[int], draft: Sequence[int], masked: Sequence[bool]
    ) -> AlignedDraft:
        """Spell the response before the first masked position and the draft from there on.

        `prefix` are the ids of the answer before it (the prompt left out; special tokens in it
        have no bytes), `draft` the ids from it on, revealed tokens where they are revealed,
        `masked` says which of them are not.
        """
        text = b"".join(map(self.dlm.spell, prefix))
        pieces, stops = self._candidate(draft)
        flags, start = np.array(masked, bool), len(text)
        text += b"".join(pieces)
        sizes = np.array([len(piece) for piece in pieces], np.int64)
        whole = _whole(text)
        ids = self.guider.encode(text[:whole].decode()) if whole >= start else []
        ends = np.cumsum(self.guider.sizes(ids))
        if whole < start or int(ends[-1:].sum()) != whole:
            return _nothing(start, flags)
        first = int(np.searchsorted(ends, start, "right"))
        masks = np.repeat(flags[: len(pieces)], sizes)
        before = np.append(0, np.cumsum(masks))[np.maximum(np.append(start, ends), start) - start]
        judged = before[1:] > before[:-1]
        if stops := stops and whole == len(text):
            ids.append(self.guider.stops[0])
            ends = np.append(ends, whole)
            judged = np.append(judged, flags[len(pieces)])
        return AlignedDraft(
            tuple(ids), ends, first, judged, stops, start, start + np.cumsum(sizes), flags
        )

    def _candidate(self, draft: Sequence[int]) -> tuple[list[bytes], bool]:
        """The draft's bytes, token by token up to the first without; whether that is a STOP."""
        pieces: list[bytes] = []
        for token in draft:
            piece = self.dlm.spell(token)
            if not piece or token in self.dlm.stops:
                return pieces, token in self.dlm.stops
            pieces.append(piece)
        return pieces, False


def _whole(text: bytes) -> int:
    """How many leading bytes are whole characters."""
    try:
        text.decode()
    except UnicodeDecodeError as error:
        return error.start
    return len(text)


def _nothing(prefix: int, masked: NDArray[np.bool_]) -> AlignedDraft:
    """An alignment of which nothing can be judged."""
    none = np.empty(0, np.int64)
    return AlignedDraft((), none, 0, none.astype(bool), False, prefix, none, masked)
