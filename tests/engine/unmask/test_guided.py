"""Guided decoding with fake guiders: which tokens are committed, and in how many steps."""

import math

import numpy as np
import pytest

from engine.generate.loop import Denoiser, denoise
from engine.guider.verification import RULES
from tests.support.fake_guiders import (
    accepts_all,
    fake_run_guider,
    logits_at,
    random_bigrams,
    rejects_all,
)
from tests.support.micro import (
    ATOL,
    MASK,
    VOCAB,
    LogitTap,
    Run,
    make_model,
    make_prompts,
    make_spec,
    micro_job,
    model_of,
    run,
    widest_gap,
)  # fmt: skip

P, G = 6, 16
PROMPT = make_prompts(P)[0]


def model_without_stops(shift=0, seed=31, layers=3):
    """A model without stop tokens."""
    return make_model(seed, shift, 4, layers, stop_ids=())


def guided(model, logits_of, prompts=(PROMPT,), recorder=None, readers=None, **changes):
    knobs = {f"guided.{k}": changes.pop(k) for k in ("rule", "k", "tau", "fallback", "block",
             "multi_chunk") if k in changes}  # fmt: skip
    knobs |= changes.pop("knobs", {})
    spec = make_spec(**{"unmasker": "guided", "knobs": knobs} | changes)
    job = micro_job(model, spec, list(prompts), recorder)
    job.run_guider = fake_run_guider(model.info, prompts, logits_of, readers=readers)
    state = Denoiser(job)
    return Run(state, list(denoise(state)))


def accepted(ran):
    return [event.guided.accepted for event in ran.events]


@pytest.mark.parametrize("block", [3, 5, 16, 64])
@pytest.mark.parametrize("shift", [0, 1])
def test_a_guider_that_accepts_all_takes_one_step_a_chunk_or_one_in_all(shift, block):
    model, readers = model_without_stops(shift), []
    chunks = math.ceil(G / block)
    single = guided(model, accepts_all(VOCAB), block=block, multi_chunk=False, readers=readers)
    assert accepted(single) == [min(block, G - block * i) for i in range(chunks)]
    assert readers[-1].calls == chunks
    several = guided(model, accepts_all(VOCAB), block=block, readers=readers)
    assert accepted(several) == [G]
    assert readers[-1].calls == several.events[0].guided.forwards == chunks


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("shift", [0, 1])
def test_a_guider_that_rejects_all_gives_greedy_left_to_right_decoding(shift, rule):
    model, tau = model_without_stops(shift), 1.0
    logits_of = rejects_all(VOCAB, MASK)
    refused = guided(model, logits_of, rule=rule, k=2, tau=tau)
    plain = run(model, make_spec(block_length=1), [PROMPT])
    assert len(refused.events) == G
    assert np.array_equal(refused.ids, plain.ids)
    assert all(event.guided.fell_back for event in refused.events)
    seeded = guided(model, rejects_all(VOCAB, MASK), rule=rule, tau=tau, multi_chunk=False, block=1)
    assert np.array_equal(seeded.ids, plain.ids)


def broken_at(monkeypatch, place):
    """Logits that are NaN at a position of the canvas."""
    whole = Denoiser._logits

    def broken(self, view, counter):
        plan, z = whole(self, view, counter)
        z[view.needs == place] = math.nan
        return plan, z

    monkeypatch.setattr(Denoiser, "_logits", broken)


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("place", [P, P + 5])
def test_a_draft_ends_before_logits_that_are_no_numbers(monkeypatch, rule, place):
    model = model_without_stops()
    whole = guided(model, accepts_all(VOCAB), rule=rule)
    broken_at(monkeypatch, place)
    prompts = [PROMPT]
    spec = make_spec(unmasker="guided", knobs={"guided.rule": rule})
    job = micro_job(model, spec, prompts)
    job.run_guider = fake_run_guider(model.info, prompts, accepts_all(VOCAB))
    state = Denoiser(job)
    with pytest.raises(RuntimeError, match="the logits may not be finite numbers"):
        list(denoise(state))
    assert state.masked[0, place:].all()
    assert state.ids[0, P:place].tolist() == whole.ids[0, P:place].tolist()


@pytest.mark.parametrize("rule", RULES)
def test_a_guider_whose_logits_are_no_numbers_ends_the_run(rule):
    def logits_of(ids, known):
        z = logits_at(ids[known:], VOCAB)
        z[-1] = math.nan
        return z

    with pytest.raises(RuntimeError, match="the guider's logits are not finite numbers"):
        guided(model_without_stops(), logits_of, rule=rule)


def test_fallback_ar_commits_the_guiders_text():
    model, logits_of = model_without_stops(), rejects_all(VOCAB, MASK)
    ran = guided(model, logits_of, fallback="ar", rule="top1")
    text = list(PROMPT)
    for place in range(G):
        drafted = drafted_token(model, ran, place)
        text.append(int(logits_of([*text, drafted], len(text)).argmax()))
    assert ran.ids[0].tolist() == text
    assert not np.array_equal(ran.ids, guided(model, logits_of, rule="top1").ids)


def test_the_confidence_of_a_token_of_the_guider_is_its_own():
    tap = LogitTap()
    ran = guided(
        model_without_stops(), rejects_all(VOCAB, MASK), recorder=tap, fallback="ar", rule="top1"
    )
    for event, (view, _, logits, _) in zip(ran.events, tap.steps, strict=True):
        row = view.needs[0].tolist().index(int(event.positions[0]))
        own = logits[0, row].softmax(-1)
        assert event.confidence[0] == pytest.approx(float(own[int(event.ids[0])]), rel=1e-5)
        assert int(own.argmax()) != int(event.ids[0])


def drafted_token(model, ran, place):
    """The model's draft for the first mask after `place` tokens."""
    tap = LogitTap()
    ids = ran.ids.copy()
    fixed = tuple((i, int(ids[0, P + i])) for i in range(place))
    spec = make_spec(block_length=1, fixed=fixed)
    state = Denoiser(micro_job(model, spec, [PROMPT], tap))
    next(denoise(state))
    view, _, z, _ = tap.steps[0]
    assert int(view.needs[0, 0]) == P + place
    return int(z[0, 0].argmax())


@pytest.mark.parametrize("cache", ["none", "freecache", "dual", "dare_kv"])
@pytest.mark.parametrize("family", ["mha", "shifted-gqa"])
def test_commits_are_the_drafts_of_the_leading_masks(family, cache):
    model, tap = model_of(family), LogitTap()
    ran = guided(model, random_bigrams(VOCAB, 3), recorder=tap, rule="topk", k=12, cache=cache)
    front, counts = P, []
    for event, (view, _, z, canvas) in zip(ran.events, tap.steps, strict=True):
        k = len(event.positions) if not event.guided.stopped else own_commits(event)
        assert not view.masked[0, :front].any()
        assert event.positions[:k].tolist() == list(range(front, front + k))
        best = z.argmax(-1)[0]
        places = {int(p): i for i, p in enumerate(view.needs[0])}
        assert [int(best[places[p]]) for p in range(front, front + k)] == event.ids[:k].tolist()
        assert (canvas[0, front:] == MASK).all()
        counts.append(k)
        front += k
    assert max(counts) > 1
    assert min(counts) == 1


def own_commits(event):
    """Number of committed tokens of a step, without those that the end-of-text rule filled."""
    return int(np.isfinite(event.confidence).sum())


@pytest.mark.parametrize("offset", [0, 1, 5, 15])
def test_a_rejected_token_ends_the_accepted_run(offset):
    model = model_without_stops()

    def logits_of(ids, known):
        shown = list(ids[known:])
        if len(ids) > P + offset >= known:
            shown[P + offset - known] = 3 + (shown[P + offset - known] - 2) % 30
        return logits_at(shown, VOCAB)

    first = guided(model, logits_of).events[0].guided
    assert first.accepted == offset
    assert first.fell_back == (offset == 0)
    assert guided(model, accepts_all(VOCAB)).events[0].guided.accepted == G


def test_the_guider_reads_known_and_drafted_tokens():
    model, seen = model_without_stops(), []

    def logits_of(ids, known):
        seen.append((ids, known))
        return random_bigrams(VOCAB, 3)(ids, known)

    ran = guided(
        model, logits_of, rule="topk", k=12, block=5, multi_chunk=False, fixed=((2, 9), (7, 8))
    )
    front = P
    for (ids, known), event in zip(seen, ran.events, strict=True):
        assert known == event.positions[0]
        assert ids[:known] == ran.ids[0, :known].tolist()
        assert len(ids) - known <= 7
        assert known >= front
        front = known + 1
    assert ran.ids[0, P + 2] == 9
    assert ran.ids[0, P + 7] == 8


@pytest.mark.parametrize("family", ["mha", "shifted-mha"])
def test_a_window_as_wide_as_the_canvas_equals_no_cache(family):
    logits_of = random_bigrams(VOCAB, 3)
    taps = LogitTap(), LogitTap(), LogitTap()
    model, common = model_of(family), {"rule": "topk", "k": 12}
    plain = guided(model, logits_of, recorder=taps[0], **common)
    wide = guided(model, logits_of, recorder=taps[1], cache="freecache",
                  knobs={"freecache.window": P + G}, **common)  # fmt: skip
    assert plain.reveals == wide.reveals
    assert widest_gap(taps[0].steps, taps[1].steps) < ATOL
    guided(model, logits_of, recorder=taps[2], cache="freecache",
           knobs={"freecache.window": 5}, **common)  # fmt: skip
    assert widest_gap(taps[0].steps, taps[2].steps) > 1e-6


@pytest.mark.parametrize("cache", ["prefix", "dual"])
def test_block_caches_end_the_draft_at_the_block(cache):
    ran = guided(model_without_stops(), accepts_all(VOCAB), cache=cache)
    assert [event.positions.tolist() for event in ran.events] == [
        list(range(P + 4 * b, P + 4 * b + 4)) for b in range(4)
    ]
    whole = guided(model_without_stops(), accepts_all(VOCAB), cache=cache, block_length=G)
    assert len(whole.events) == len(guided(model_without_stops(), accepts_all(VOCAB)).events) == 1


def test_a_sliding_window_ends_the_draft_at_its_edge():
    ran = guided(
        model_without_stops(), accepts_all(VOCAB), cache="freecache", knobs={"freecache.window": 6}
    )
    assert [event.positions.tolist() for event in ran.events] == [
        list(range(lo, min(lo + 5, P + G))) for lo in range(P, P + G, 5)
    ]


def accepts_five(ids, known):
    """A guider that accepts five tokens of a draft and rejects the others."""
    shown = [*ids[known : known + 5], *(3 + (token - 2) % 30 for token in ids[known + 5 :])]
    return logits_at(shown, VOCAB)


@pytest.mark.parametrize("shift", [0, 1])
@pytest.mark.parametrize("block", [1, 4, 5, 64])
def test_freecache_is_exact_with_one_layer(shift, block):
    model, taps = model_without_stops(shift, layers=1), (LogitTap(), LogitTap(), LogitTap())
    knobs = {"freecache.block": block}
    plain = guided(model, accepts_five, recorder=taps[0])
    cached = guided(model, accepts_five, recorder=taps[1], cache="freecache", knobs=knobs)
    assert accepted(plain) == [5, 5, 5, 1]
    assert plain.reveals == cached.reveals
    assert widest_gap(taps[0].steps, taps[1].steps) < ATOL
    assert [event.rows for event in cached.events[1:]] != [P + G] * 3
    knobs = {"freecache.block": 1, "freecache.freeze": "stale"}
    guided(model, accepts_five, recorder=taps[2], cache="freecache", knobs=knobs)
    assert widest_gap(taps[0].steps, taps[2].steps) > 1e-6


@pytest.mark.parametrize("cache", ["none", "prefix", "dual", "freecache"])
def test_a_batch_decodes_as_its_sequences_do_alone(cache):
    model, prompts = model_of("mha"), make_prompts(6, 9, 7)
    common = {"rule": "topk", "k": 12, "cache": cache, "eos": "official"}
    together = guided(model, random_bigrams(VOCAB, 3), prompts, **common)
    for row, prompt in enumerate(prompts):
        single = guided(model, random_bigrams(VOCAB, 3), [prompt], **common)
        assert np.array_equal(together.ids[row, 9:], single.ids[0, len(prompt) :])
    assert len({tuple(row) for row in together.ids[:, 9:].tolist()}) == 3


def test_a_finished_sequence_reads_a_row_of_its_own_window():
    """In step 2 sequence 0 has ended, and the frontiers of the others are far from each other."""
    model, prompts = model_without_stops(), make_prompts(P, P, P)
    refused = [set(), {P + 14}, set(range(P, P + G))]

    def logits_of(ids, known):
        wrong = refused[prompts.index(ids[:P])]
        shown = [3 + (t - 2) % 30 if known + i in wrong else t for i, t in enumerate(ids[known:])]
        return logits_at(shown, VOCAB)

    how = {"cache": "freecache", "knobs": {"freecache.window": 9}}
    batch = guided(model, logits_of, prompts, **how)
    for row, prompt in enumerate(prompts):
        assert np.array_equal(batch.ids[row], guided(model, logits_of, [prompt], **how).ids[0])
