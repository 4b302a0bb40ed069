"""Same: drafts judged id by id, where model and guider share their vocabulary.

What engine.guider.byte_alignment does for different vocabularies, in the same terms, with a token of
the draft for a token of the guider.


Pair: how the vocabularies of a drafting model and of its guider relate.

The vocabulary is shared where every ordinary token has the same id in both; that is found out,
not declared. Then drafts are judged id by id. Otherwise text is what both have in common, and
drafts are spelt anew in the guider's tokens (engine.guider.byte_alignment).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from engine.guider.byte_alignment import TAIL, Accepted, AlignedDraft, ByteAlignment, Vocabulary
from engine.models.ops import wide
from engine.models.tokenizer import Tokenizer


@dataclass(frozen=True, slots=True)
class SharedDraft:
    """A response and a draft, of which `ids[first:]` is the draft up to its first end of text.

    `masked` [len(ids) - first] which of it is to be filled; `stops` says that the last id ends
    the text.
    """

    ids: tuple[int, ...]
    first: int
    masked: NDArray[np.bool_]
    stops: bool

    @property
    def judged(self) -> NDArray[np.bool_]:
        """Masked positions [len(ids)]: only their flags count."""
        return np.append(np.zeros(self.first, bool), self.masked)

    def covers(self) -> NDArray[np.int64]:
        """The tokens [start, end) that spell each position: itself."""
        places = np.arange(self.first, len(self.ids))
        return np.stack((places, places + 1), 1)

    def accept(self, ok: NDArray[np.bool_], most: int | None = None) -> Accepted:
        """Count the masked positions before the first that is not agreed to, at most `most`."""
        wrong = np.flatnonzero(self.masked & ~ok)
        k = int(self.masked[: wrong[0] if len(wrong) else len(ok)].sum())
        return Accepted(k if most is None else min(k, most), 0, 0)


@dataclass(frozen=True)
class SharedVocabulary:
    """Passes ids on; any of `stops` is written as `stop`, the guider's own, and ends the draft."""

    stops: tuple[int, ...]
    stop: int

    def align(
        self, prefix: Sequence[int], draft: Sequence[int], masked: Sequence[bool]
    ) -> SharedDraft:
        """See ByteAlignment.align; the draft begins with a masked position."""
        end = next((i for i, token in enumerate(draft) if token in self.stops), None)
        kept = list(draft if end is None else draft[:end])
        kept += [] if end is None else [self.stop]
        flags = np.array(masked[: len(kept)], bool)
        return SharedDraft((*prefix, *kept), len(prefix), flags, end is not None)


@dataclass(frozen=True)
class VocabularyPair:
    """What may be drafted and judged.

    `stops` are the model's ids that end a text, `guider_stops` the guider's: one class, judged
    as the first of them. `barred` and `guider_barred` are ids whose logits are -inf: specials
    without a counterpart and rows that stand for no token.
    """

    stops: tuple[int, ...]
    guider_stops: tuple[int, ...]
    barred: tuple[int, ...] = ()
    guider_barred: tuple[int, ...] = ()
    alignment: ByteAlignment | None = None

    @property
    def shared(self) -> bool:
        """Whether ids mean the same to both."""
        return self.alignment is None

    @property
    def tail(self) -> int:
        """Masked positions drafted past a chunk, so that its end is not judged on cut text."""
        return 0 if self.shared else TAIL

    def spell(
        self, prefix: Sequence[int], draft: Sequence[int], masked: Sequence[bool]
    ) -> AlignedDraft | SharedDraft:
        """A draft after `prefix` in the guider's tokens; see ByteAlignment.align."""
        if self.alignment is not None:
            return self.alignment.align(prefix, draft, masked)
        return SharedVocabulary(self.stops, self.guider_stops[0]).align(prefix, draft, masked)

    def restrict(self, logits: Tensor) -> None:
        """Rule out what the guider cannot judge, in place on the model's logits [..., V]."""
        logits[..., self._places(self.barred, logits)] = -torch.inf

    def distribution(self, logits: Tensor) -> Tensor:
        """The guider's log-probabilities [n, V] of its logits, at least in float32.

        What cannot be drafted is -inf, and so are all stops but the first, which has their sum.
        """
        z = wide(logits).clone()
        z[:, self._places(self.guider_barred, z)] = -torch.inf
        return self._merged(z, self.guider_stops).log_softmax(1)

    def divergence(self, logits: Tensor, log_p: Tensor) -> Tensor:
        """KL(p_f || p_g) [n] in nats of the model's restricted logits [n, V] and `distribution`.

        Both vocabularies are one; ends of text count as one token.
        """
        assert self.shared, "distributions over different tokens do not compare"
        ours = self._merged(wide(logits).clone(), self.stops).log_softmax(1)
        both = min(ours.shape[1], log_p.shape[1])
        ours, theirs = ours[:, :both], log_p[:, :both].to(ours.device)
        gap = torch.where(ours > -torch.inf, ours - theirs, 0.0)
        return (ours.exp() * gap).sum(1).clamp_min(0)

    def _merged(self, z: Tensor, stops: Sequence[int]) -> Tensor:
        """The logits [n, V] with those of all `stops` taken together at the guider's first."""
        if not stops:
            return z
        places = self._places(stops, z)
        ended = z[:, places].logsumexp(1)
        z[:, places] = -torch.inf
        z[:, self.guider_stops[0]] = ended
        return z

    @staticmethod
    def _places(ids: Sequence[int], logits: Tensor) -> Tensor:
        return torch.tensor(ids, dtype=torch.long, device=logits.device)


def same_vocabulary(one: Tokenizer, other: Tokenizer) -> bool:
    """Whether every ordinary token has the same id in both."""
    return one.ordinary == other.ordinary


def reads_alike(ids: Sequence[int], one: Tokenizer, other: Tokenizer) -> bool:
    """Whether a prompt's ids name the same tokens in both, its specials included."""
    theirs = set(other.specials.items())
    strange = {i for name, i in one.specials.items() if (name, i) not in theirs}
    return not strange.intersection(ids)


def pair_vocabularies(
    dlm: Tokenizer,
    stops: Sequence[int],
    rows: int,
    guider: Tokenizer,
    guider_stops: Sequence[int],
    guider_rows: int,
) -> VocabularyPair:
    """The pair of two tokenizers; `stops` end a text, `rows` are those of the logits.

    Raises ValueError naming `guided.guider` where the vocabularies differ and one of them is no
    byte-level BPE.
    """
    stops, guider_stops = tuple(stops), tuple(guider_stops)
    if same_vocabulary(dlm, guider):
        both = set(dlm.ordinary.values()) | set(
            dict(dlm.specials.items() & guider.specials.items()).values()
        )
        both = {i for i in both if i < min(rows, guider_rows)}
        ends = tuple(dict.fromkeys((*guider_stops, *(i for i in stops if i in both))))
        return VocabularyPair(
            stops,
            ends,
            tuple(i for i in range(rows) if i not in stops and (i not in both or i in ends)),
            tuple(i for i in range(guider_rows) if i not in both and i not in ends),
        )
    try:
        theirs = Vocabulary(guider, guider_stops)
        ours = Vocabulary(dlm, stops)
    except ValueError as error:
        raise ValueError(f"guided.guider: {error}") from None
    return VocabularyPair(
        stops,
        guider_stops,
        ours.barred(rows),
        theirs.barred(guider_rows),
        ByteAlignment(ours, theirs),
    )
