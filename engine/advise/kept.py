"""What a setting keeps of plain decoding, and the tests that accept it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from engine.batch.outcome import Outcome
from engine.batch.prompts import Prompt
from engine.batch.results import Pair, same_answer
from engine.batch.statistics import RESAMPLES, agreement, bootstrap_interval, discordant, mcnemar
from engine.core.tables import SIGNIFICANT

KINDS = ("tokens", "answers", "accuracy")


@dataclass(frozen=True)
class Kept:
    """A share kept over `pairs` prompts: its estimate and 95 % interval.

    `accuracy`: right answers over those of plain decoding, which may exceed 1; `gained`, `lost` and
    `p` are those of McNemar's test, `plain_right` is the number of plain decoding's right answers.
    The other kinds lack these four.
    """

    share: float
    low: float
    high: float
    pairs: int
    gained: int = 0
    lost: int = 0
    p: float | None = None
    plain_right: int = 0

    def may_keep(self, keep: float) -> bool:
        """Whether the interval reaches `keep`."""
        return self.high >= keep

    def accepts(self, keep: float) -> bool:
        """Whether the test on these prompts accepts the setting.

        Tokens and answers: the whole interval is at or above `keep`. Accuracy: the estimate is, and
        McNemar's test finds no loss at the level SIGNIFICANT.
        """
        if self.p is None:
            return self.low >= keep
        return self.share >= keep and not (self.lost > self.gained and self.p < SIGNIFICANT)


def check_kept(kind: str, keep: float, prompts: Sequence[Prompt]) -> None:
    """Raise ValueError naming `of` or `keep` if they do not go with the prompts."""
    if kind not in KINDS:
        raise ValueError(f"of: {kind!r} is unknown; choose from {', '.join(KINDS)}")
    if not 0 < keep <= 1:
        raise ValueError(f"keep: {keep} is outside 0 to 1; give a share such as 0.95")
    unknown = sum(one.answer is None for one in prompts)
    if kind == "accuracy" and unknown:
        raise ValueError(
            f"of: {unknown} of {len(prompts)} prompts have no answer; give one to each, or keep "
            "tokens or answers"
        )


def kept(kind: str, pairs: Sequence[Pair]) -> Kept | None:
    """What the second run of each pair keeps of the first, plain decoding.

    None if there are no pairs or, for `accuracy`, plain decoding has no right answer.
    """
    if not pairs:
        return None
    if kind == "accuracy":
        return accuracy_kept([(bool(a.right), bool(b.right)) for a, b in pairs])
    shares = [_share(kind, a, b) for a, b in pairs]
    return Kept(float(np.mean(shares)), *bootstrap_interval(shares), len(pairs))


def _share(kind: str, plain: Outcome, other: Outcome) -> float:
    return agreement(plain.ids, other.ids) if kind == "tokens" else same_answer(plain, other)


def accuracy_kept(pairs: Sequence[tuple[bool, bool]]) -> Kept | None:
    """What a setting keeps of plain decoding's right answers.

    Each of `pairs` says of one problem whether plain decoding solves it, and whether the setting
    does. None if plain decoding solves none.
    """
    right = np.array(pairs, float)
    plain = right[:, 0].sum()
    if not plain:
        return None
    rng = np.random.default_rng(0)
    draws = rng.integers(len(right), size=(RESAMPLES, len(right)))
    sums = right[draws].sum(1)
    sums = sums[sums[:, 0] > 0]  # without a right answer of plain decoding there is no ratio
    ratios = sums[:, 1] / sums[:, 0]
    low, high = np.quantile(ratios, (0.025, 0.975))
    gained, lost = discordant(pairs)
    share = float(right[:, 1].sum() / plain)
    return Kept(
        share, float(low), float(high), len(right), gained, lost, mcnemar(gained, lost), int(plain)
    )
