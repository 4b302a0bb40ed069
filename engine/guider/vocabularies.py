"""The vocabularies of a drafting model and its guider.

The vocabulary counts as shared if every ordinary token has the same id in both; this is computed,
not declared. Drafts are then verified id by id. Otherwise they are spelt in the guider's tokens
(engine.guider.alignment).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from engine.guider.alignment import (
    LOOKAHEAD,
    AlignedDraft,
    ByteAlignment,
    ByteVocabulary,
    align_shared,
)
from engine.models.ops import upcast
from engine.models.tokenizer import Tokenizer


@dataclass(frozen=True)
class VocabularyPair:
    """How the ids of a model and its guider correspond; `alignment` is None if they are the same.

    Stop ids end a text, and all are verified as the first of `guider_stop_ids`. The logits of
    excluded ids become -inf: special tokens without a counterpart, and rows that are no tokens.
    """

    stop_ids: tuple[int, ...]
    guider_stop_ids: tuple[int, ...]
    excluded_ids: tuple[int, ...] = ()
    guider_excluded_ids: tuple[int, ...] = ()
    alignment: ByteAlignment | None = None

    @property
    def shared(self) -> bool:
        """Whether ordinary tokens have the same ids in both vocabularies."""
        return self.alignment is None

    @property
    def lookahead(self) -> int:
        """Masked positions drafted beyond a chunk, so that its last token is not cut."""
        return 0 if self.shared else LOOKAHEAD

    def align(
        self, response: Sequence[int], draft: Sequence[int], masked: Sequence[bool]
    ) -> AlignedDraft:
        """Express a draft after `response` in the guider's tokens; see ByteAlignment.align."""
        if self.alignment is not None:
            return self.alignment.align(response, draft, masked)
        return align_shared(response, draft, masked, self.stop_ids, self.guider_stop_ids[0])

    def restrict_logits(self, logits: Tensor) -> None:
        """Set the model's logits [..., V] of tokens that the guider cannot verify to -inf."""
        logits[..., _index(self.excluded_ids, logits)] = -torch.inf

    def guider_log_probs(self, logits: Tensor) -> Tensor:
        """Log-probabilities [n, V] of the guider's logits, at least in float32.

        Excluded tokens get -inf; the first stop token gets the probability of all stop tokens.
        """
        z = upcast(logits).clone()
        z[:, _index(self.guider_excluded_ids, z)] = -torch.inf
        return self._merge_stops(z, self.guider_stop_ids).log_softmax(1)

    def kl_divergence(self, logits: Tensor, guider_log_p: Tensor) -> Tensor:
        """KL(p_f || p_g) [n] in nats, for a shared vocabulary; stop tokens count as one token.

        p_f is given by the model's restricted logits [n, V], p_g by `guider_log_probs`.
        """
        assert self.shared, "distributions over different tokens do not compare"
        ours = self._merge_stops(upcast(logits).clone(), self.stop_ids).log_softmax(1)
        both = min(ours.shape[1], guider_log_p.shape[1])
        ours, theirs = ours[:, :both], guider_log_p[:, :both].to(ours.device)
        gap = torch.where(ours > -torch.inf, ours - theirs, 0.0)
        return (ours.exp() * gap).sum(1).clamp_min(0)

    def _merge_stops(self, z: Tensor, stop_ids: Sequence[int]) -> Tensor:
        """Merge `stop_ids` into the guider's first stop id, in place in the logits [n, V]."""
        if not stop_ids:
            return z
        columns = _index(stop_ids, z)
        total = z[:, columns].logsumexp(1)
        z[:, columns] = -torch.inf
        z[:, self.guider_stop_ids[0]] = total
        return z


def _index(ids: Sequence[int], logits: Tensor) -> Tensor:
    return torch.tensor(ids, dtype=torch.long, device=logits.device)


def same_prompt_tokens(ids: Sequence[int], model: Tokenizer, guider: Tokenizer) -> bool:
    """Whether a prompt's special tokens have the same ids in both vocabularies."""
    shared = set(guider.specials.items())
    different = {i for name, i in model.specials.items() if (name, i) not in shared}
    return not different.intersection(ids)


def pair_vocabularies(
    model: Tokenizer,
    stop_ids: Sequence[int],
    vocab_size: int,
    guider: Tokenizer,
    guider_stop_ids: Sequence[int],
    guider_vocab_size: int,
) -> VocabularyPair:
    """Compare two vocabularies; the vocabulary sizes are the numbers of logits.

    Raises ValueError naming `guided.guider` if the vocabularies differ and one of them is no
    byte-level BPE.
    """
    stop_ids, guider_stop_ids = tuple(stop_ids), tuple(guider_stop_ids)
    if model.ordinary == guider.ordinary:
        both = set(model.ordinary.values()) | set(
            dict(model.specials.items() & guider.specials.items()).values()
        )
        both = {i for i in both if i < min(vocab_size, guider_vocab_size)}
        stops = tuple(dict.fromkeys((*guider_stop_ids, *(i for i in stop_ids if i in both))))
        drafted, verified = both.difference(stops).union(stop_ids), both.union(stops)
        return VocabularyPair(
            stop_ids,
            stops,
            tuple(i for i in range(vocab_size) if i not in drafted),
            tuple(i for i in range(guider_vocab_size) if i not in verified),
        )
    try:
        theirs = ByteVocabulary(guider, guider_stop_ids)
        ours = ByteVocabulary(model, stop_ids)
    except ValueError as error:
        raise ValueError(f"guided.guider: {error}") from None
    return VocabularyPair(
        stop_ids,
        guider_stop_ids,
        ours.excluded_ids(vocab_size),
        theirs.excluded_ids(guider_vocab_size),
        ByteAlignment(ours, theirs),
    )
