"""What a setting keeps, against references computed here, and the tests that accept it."""

import numpy as np
import pytest

from engine.advise.kept import Kept, check_kept, kept
from engine.batch.outcome import Outcome
from engine.batch.prompts import Prompt

RIGHT, WRONG = Outcome("done", ids=(1, 2), right=True), Outcome("done", ids=(1, 3), right=False)


def test_tokens_are_kept_by_their_share():
    found = kept("tokens", [(RIGHT, RIGHT), (RIGHT, WRONG)])
    assert (found.share, found.pairs, found.p) == (0.75, 2, None)
    assert found.low <= 0.75 <= found.high


def test_answers_are_kept_or_not():
    a, b = Outcome("done", number=4), Outcome("done", number=5)
    assert kept("answers", [(a, a), (a, b), (b, b)]).share == pytest.approx(2 / 3)


def test_accuracy_is_kept_as_a_ratio_with_a_paired_test():
    pairs = [(RIGHT, RIGHT)] * 6 + [(RIGHT, WRONG)] * 3 + [(WRONG, RIGHT)]
    found = kept("accuracy", pairs)
    assert found.share == pytest.approx(7 / 9)
    assert (found.gained, found.lost) == (1, 3)
    assert found.p == pytest.approx(2 * (1 + 4) / 16)
    rng, right = np.random.default_rng(5), np.array([(a.right, b.right) for a, b in pairs], float)
    draws = [right[rng.integers(10, size=10)].sum(0) for _ in range(4000)]
    want = np.quantile([b / max(a, 1) for a, b in draws], (0.025, 0.975))
    assert (found.low, found.high) == pytest.approx(want, abs=0.06)


def test_draws_without_a_right_answer_of_plain_decoding_have_no_ratio():
    """A third of the draws from six problems, one of which is solved, lack it."""
    found = kept("accuracy", [(RIGHT, RIGHT)] + [(WRONG, WRONG)] * 5)
    assert (found.share, found.low, found.high) == (1, 1, 1)


def test_nothing_can_be_judged_without_pairs_or_right_answers():
    assert kept("tokens", []) is None
    assert kept("accuracy", [(WRONG, RIGHT)]) is None


@pytest.mark.parametrize(
    ("own", "accepted"),
    [
        (Kept(0.97, 0.95, 0.99, 50), True),
        (Kept(0.97, 0.93, 0.99, 50), False),
        (Kept(0.97, 0.90, 1.02, 50, gained=1, lost=3, p=0.6), True),
        (Kept(0.96, 0.90, 1.02, 500, gained=1, lost=21, p=0.001), False),
        (Kept(0.90, 0.85, 1.02, 50, gained=1, lost=3, p=0.6), False),
        (Kept(1.10, 1.01, 1.20, 500, gained=30, lost=1, p=0.001), True),
    ],
)
def test_the_interval_accepts_shares_and_mcnemar_accuracy(own, accepted):
    assert own.accepts(0.95) is accepted


@pytest.mark.parametrize(
    ("kind", "keep", "answer", "words"),
    [
        ("text", 0.9, "4", "of: 'text' is unknown"),
        ("tokens", 1.5, "4", "keep: 1.5 is outside"),
        ("accuracy", 0.9, None, "of: 1 of 1 prompts have no answer"),
    ],
)
def test_what_does_not_fit_the_prompts_is_refused(kind, keep, answer, words):
    with pytest.raises(ValueError, match=f"^{words}"):
        check_kept(kind, keep, [Prompt("a", answer)])
