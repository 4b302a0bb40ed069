"""Vocabulary: the tokens of a byte-level BPE tokenizer as bytes, and text as its ids."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import tokenizers
from numpy.typing import NDArray
from tokenizers import decoders

from engine.text import Tokenizer, byte_alphabet

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
