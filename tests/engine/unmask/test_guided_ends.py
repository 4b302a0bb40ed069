"""Guided decoding with fake guiders: ends of text, rows with logits, record levels."""

import numpy as np

from tests.engine.generate.test_end_of_text import ending_model, first_end
from tests.engine.unmask.test_guided import PROMPT, G, P, guided, model_without_stops
from tests.support.fake_guiders import accepts_all, random_bigrams, rejects_all
from tests.support.micro import EOS, MASK, VOCAB, LogitTap, make_model, make_spec, model_of, run


def test_a_committed_end_of_text_ends_the_run_for_every_eos():
    model = ending_model()
    greedy = run(model, make_spec(block_length=1)).ids[0]
    end = first_end(greedy[P:])
    for eos in ("official", "fill_safe"):
        for logits_of in (rejects_all(VOCAB, MASK), accepts_all(VOCAB)):
            ran = guided(model, logits_of, eos=eos, block=1, multi_chunk=False)
            assert np.array_equal(ran.ids[0, : P + end + 1], greedy[: P + end + 1])
            assert (ran.ids[0, P + end + 1 :] == EOS).all()
            assert len(ran.events) == end + 1
            assert [e.guided.stopped for e in ran.events] == [False] * end + [True]
    assert len(run(model, make_spec(block_length=1)).events) == G


def test_an_end_of_text_in_the_prompt_is_ignored():
    model = model_without_stops()
    prompt = [*PROMPT[:3], EOS, *PROMPT[4:]]
    ran = guided(make_model(31), rejects_all(VOCAB, MASK), [prompt], eos_suppress="logits")
    assert len(ran.events) > 1
    assert len(guided(model, accepts_all(VOCAB), [prompt]).events) == 1


def test_logits_are_computed_for_every_position_that_can_be_verified():
    tap = LogitTap()
    guided(model_without_stops(), accepts_all(VOCAB), recorder=tap, block=5, multi_chunk=False)
    assert [view.needs.shape[1] for view, *_ in tap.steps] == [5, 5, 5, 1]
    tap = LogitTap()
    guided(model_without_stops(), accepts_all(VOCAB), recorder=tap, block=5)
    assert [view.needs.shape[1] for view, *_ in tap.steps] == [16]


def test_record_levels_do_not_change_the_run():
    model = model_of("gqa")
    plain = guided(model, random_bigrams(VOCAB, 3), rule="topk", k=12)
    recorded = guided(model, random_bigrams(VOCAB, 3), rule="topk", k=12, record="steps")
    assert plain.reveals == recorded.reveals
    assert all(event.guided.verdicts is None for event in plain.events)
    assert all(event.guided.verdicts is not None for event in recorded.events)
