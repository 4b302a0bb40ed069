"""Contexts and continuations of the harness as token ids."""

import pytest

pytest.importorskip("lm_eval")

from lm_eval.api.instance import Instance

from engine.lm_eval.model import DriftscopeLM


@pytest.fixture(scope="module")
def dream():
    return DriftscopeLM("tiny-dream", gen_length=32, steps=8, mc_num=1)


def test_a_context_of_spaces_is_one_without_text(dream):
    """The harness moves its spaces to the continuation, and a shifted model needs a row before."""
    before, after = dream._pair(" ", "So 4.")
    assert before == [dream.prefix_token_id]
    assert after == dream.tok_encode(" So 4.")
    ((value, _),) = dream.loglikelihood([Instance("loglikelihood", {}, (" ", "So 4."), 0)])
    assert value < 0


def test_a_continuation_within_the_last_token_of_the_context_is_scored(dream, monkeypatch):
    """Without ids of its own it would have the likelihood 1, whatever it says."""
    ids = {"(": [5], "A": [6], "B": [7], "(A": [8], "(B": [9]}
    monkeypatch.setattr(dream, "tok_encode", lambda text, **_: ids[text])
    assert [dream._pair("(", one) for one in "AB"] == [([5], [6]), ([5], [7])]
