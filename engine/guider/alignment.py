"""Alignment of a model's draft with the tokens of its guider.

If the two vocabularies differ, `ByteAlignment` spells response and draft as text in the guider's
tokens and compares byte offsets; if they are the same, `align_shared` keeps the ids and counts
tokens. Both give an `AlignedDraft`, and its `accept` turns the guider's decisions about single
tokens into the number of masked positions to fill.

Alignment keeps no state: equal inputs give equal ids, so the guider's cache is valid up to the
longest common prefix (earlier text can be tokenized differently when text is appended).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import tokenizers
from numpy.typing import NDArray
from tokenizers import decoders

from engine.models.tokenizer import Tokenizer, byte_alphabet

LOOKAHEAD = 8  # tokens drafted beyond a chunk, since the last ones are tokenized from cut text
NOT_IN_UTF8 = frozenset((0xC0, 0xC1, *range(0xF5, 0x100)))


@dataclass(frozen=True, slots=True)
class Acceptance:
    """The number of leading masked positions to fill with their drafted tokens.

    The guider agreed up to the offset `agreed_end`, which is `straddle_loss` beyond the end of the
    last whole token of the draft.
    """

    count: int
    agreed_end: int
    straddle_loss: int


@dataclass(frozen=True, slots=True)
class AlignedDraft:
    """A response and a draft in the guider's tokens.

    Offsets count from the start of the response, in bytes, or in tokens if the vocabulary is
    shared.

    Attributes:
        ids: tokens of the response and the draft; with `ends_with_stop`, the last is a stop id.
        token_ends: [len(ids)] offset of the end of each token.
        first: index of the first token that is not entirely inside the response.
        to_verify: [len(ids) - first] bool, tokens from `first` on that overlap a masked position.
        response_size: offset of the end of the response.
        position_ends: [m] ends of the draft's positions before its first special token.
        masked: [n] bool, positions of the draft that are to be filled.
    """

    ids: tuple[int, ...]
    token_ends: NDArray[np.int64]
    first: int
    to_verify: NDArray[np.bool_]
    ends_with_stop: bool
    response_size: int
    position_ends: NDArray[np.int64]
    masked: NDArray[np.bool_]

    def accept(self, ok: NDArray[np.bool_], most: int | None = None) -> Acceptance:
        """Count the leading masked positions that end before the guider's first disagreement.

        `ok` [len(ids) - first] are the decisions about the tokens from `first` on; `most` limits
        the count (None: no limit).
        """
        refused = np.flatnonzero(self.to_verify & ~ok)
        agreed = self.first + int(refused[0]) if len(refused) else len(self.ids)
        agreed_end = self.response_size
        if agreed:
            agreed_end = max(agreed_end, int(self.token_ends[agreed - 1]))
        whole = int(np.searchsorted(self.position_ends, agreed_end, "right"))
        loss = agreed_end - (int(self.position_ends[whole - 1]) if whole else self.response_size)
        if self.ends_with_stop and agreed == len(self.ids):
            whole += 1
        count = int(self.masked[:whole].sum())
        return Acceptance(count if most is None else min(count, most), agreed_end, loss)

    def position_spans(self) -> NDArray[np.int64]:
        """Ranges [start, end) of the guider tokens that spell each position, [d, 2], d <= n.

        Tokens are counted from `first`. Two positions can share a token. Positions from the first
        one that is not complete text on are left out; a stop has the last token.
        """
        ends = self.token_ends[:-1] if self.ends_with_stop else self.token_ends
        text_end = max(self.response_size, int(ends[-1])) if len(ends) else self.response_size
        highs = self.position_ends[: np.searchsorted(self.position_ends, text_end, "right")]
        lows = np.append(self.response_size, highs)[:-1]
        spans = (np.searchsorted(ends, lows, "right"), np.searchsorted(ends, highs, "left") + 1)
        out = np.stack(spans, 1)
        stop = [[len(ends), len(ends) + 1]] if self.ends_with_stop else np.empty((0, 2), np.int64)
        return np.concatenate((out, stop)) - self.first


def align_shared(
    response: Sequence[int],
    draft: Sequence[int],
    masked: Sequence[bool],
    stop_ids: Sequence[int],
    guider_stop: int,
) -> AlignedDraft:
    """Align a draft token by token, for a guider with the model's vocabulary.

    The draft ends at its first of `stop_ids`, which becomes `guider_stop`. Other arguments are
    those of `ByteAlignment.align`.
    """
    end = next((i for i, token in enumerate(draft) if token in stop_ids), None)
    first, ids = len(response), [*response, *draft[:end]]
    token_ends = np.arange(1, len(ids) + 1)
    position_ends = token_ends[first:]
    if end is not None:
        token_ends = np.append(token_ends, len(ids))
        ids.append(guider_stop)
    flags = np.array(masked[: len(ids) - first], bool)
    return AlignedDraft(
        tuple(ids), token_ends, first, flags, end is not None, first, position_ends, flags
    )


class ByteVocabulary:
    """The ordinary tokens of a byte-level BPE tokenizer as bytes.

    Special tokens have no bytes. `stop_ids` are equivalent, and the first stands for all of them.
    Raises ValueError if the tokenizer is not a byte-level BPE or has no token for a byte.
    """

    def __init__(self, tokenizer: Tokenizer, stop_ids: Sequence[int]) -> None:
        self.stop_ids = tuple(stop_ids)
        backend = tokenizer.backend
        if not isinstance(backend.decoder, decoders.ByteLevel):
            raise ValueError(
                "its tokenizer is no byte-level BPE, so its tokens have no bytes to compare; "
                "choose a model with one (Qwen2.5, Llama 3)"
            )
        self._bytes = _bytes_by_id(tokenizer)
        self._lengths = np.array([len(piece) for piece in self._bytes], np.int64)
        missing = {*range(256)} - NOT_IN_UTF8 - {p[0] for p in self._bytes if len(p) == 1}
        if missing:
            raise ValueError(
                f"its vocabulary has no token for the byte 0x{min(missing):02x}; copy the "
                "tokenizer's files again"
            )
        # Without added tokens and normaliser, decoding gives back the same bytes for any text.
        self._encoder = tokenizers.Tokenizer(backend.model)
        self._encoder.pre_tokenizer = backend.pre_tokenizer

    def token_bytes(self, token: int) -> bytes:
        """Bytes of an ordinary token; empty for special, stop and unknown ids."""
        return self._bytes[token] if token < len(self._bytes) else b""

    def byte_lengths(self, ids: Sequence[int]) -> NDArray[np.int64]:
        """Number of bytes of each of the ordinary tokens `ids`."""
        return self._lengths[np.asarray(ids, np.int64)]

    def encode(self, text: str) -> list[int]:
        """Ids of the ordinary tokens that spell `text` in UTF-8.

        Names of special tokens are encoded as text; nothing is normalised.
        """
        return self._encoder.encode(text, add_special_tokens=False).ids

    def excluded_ids(self, vocab_size: int) -> tuple[int, ...]:
        """Ids below `vocab_size` that cannot be drafted: no bytes, and no stop token."""
        return tuple(
            i for i in range(vocab_size) if not self.token_bytes(i) and i not in self.stop_ids
        )


def _bytes_by_id(tokenizer: Tokenizer) -> list[bytes]:
    """The bytes of each id up to the last ordinary one; empty for ids that are not text."""
    alphabet, ordinary = byte_alphabet(), tokenizer.ordinary
    out = [b""] * (max(ordinary.values(), default=-1) + 1)
    for name, i in ordinary.items():
        if all(c in alphabet for c in name):
            out[i] = bytes(alphabet[c] for c in name)
    return out


class ByteAlignment:
    """Spells text of the drafting model's vocabulary in the guider's tokens.

    Only valid UTF-8 can be spelt. A draft ends before its first incomplete or invalid character
    and before a special token. If the response itself is invalid, nothing is verified; a response
    that ends within a character is verified if the draft completes the character.
    """

    def __init__(self, model: ByteVocabulary, guider: ByteVocabulary) -> None:
        self.model, self.guider = model, guider

    def align(
        self, response: Sequence[int], draft: Sequence[int], masked: Sequence[bool]
    ) -> AlignedDraft:
        """Spell the response before the first masked position and the draft from there on.

        `response` are the answer's ids before the draft, without the prompt; its special tokens
        have no bytes. `draft` holds the drafted ids and the known ones between them; `masked`
        marks the drafted ones.
        """
        text = b"".join(map(self.model.token_bytes, response))
        pieces, ends_with_stop = self._draft_bytes(draft)
        flags, start = np.array(masked, bool), len(text)
        text += b"".join(pieces)
        lengths = np.array([len(piece) for piece in pieces], np.int64)
        size = _complete_size(text)
        ids = self.guider.encode(text[:size].decode()) if size >= start else []
        ends = np.cumsum(self.guider.byte_lengths(ids))
        if size < start or int(ends[-1:].sum()) != size:
            none = np.empty(0, np.int64)
            return AlignedDraft((), none, 0, none.astype(bool), False, start, none, flags)
        first = int(np.searchsorted(ends, start, "right"))
        masked_bytes = np.append(0, np.cumsum(np.repeat(flags[: len(pieces)], lengths)))
        to_verify = np.diff(masked_bytes[np.append(start, ends[first:]) - start]) > 0
        if ends_with_stop := ends_with_stop and size == len(text):
            ids.append(self.guider.stop_ids[0])
            ends = np.append(ends, size)
            to_verify = np.append(to_verify, flags[len(pieces)])
        return AlignedDraft(
            tuple(ids), ends, first, to_verify, ends_with_stop, start,
            start + np.cumsum(lengths), flags,
        )  # fmt: skip

    def _draft_bytes(self, draft: Sequence[int]) -> tuple[list[bytes], bool]:
        """The bytes of each token before the first special one; whether that is a stop."""
        pieces: list[bytes] = []
        for token in draft:
            piece = self.model.token_bytes(token)
            if not piece or token in self.model.stop_ids:
                return pieces, token in self.model.stop_ids
            pieces.append(piece)
        return pieces, False


def _complete_size(text: bytes) -> int:
    """The number of leading bytes that are complete, valid characters."""
    try:
        text.decode()
    except UnicodeDecodeError as error:
        return error.start
    return len(text)
