"""Alignment: a guider of any byte-level vocabulary against a judge that scans byte by byte."""

import random
from itertools import takewhile

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.guider.alignment import ByteAlignment
from tests.support.vocabularies import (
    END,
    OTHER,
    PAD,
    SINGLE,
    TEXT,
    judge,
    random_text,
    side,
    spelt,
)

SEEDS = st.integers(0, 29)


@st.composite
def drafts(draw):
    """Two vocabularies, an answer so far, a draft with masked and revealed places, flags."""
    (dlm, ours), (guider, theirs) = side(draw(SEEDS)), side(draw(SEEDS) + 100)
    rng = random.Random(draw(st.integers(0, 2**32)))
    return (dlm, ours, guider, theirs, *random_case(rng, dlm))


def random_case(rng, dlm):
    """Ids (canonical or not, cut anywhere, sometimes with a stop or an odd byte) and flags."""
    ids = dlm.encode(random_text(rng, rng.randrange(20)), add_special_tokens=False).ids
    pieces = [*range(256, dlm.get_vocab_size() - 3), *map(dlm.token_to_id, map(spelt, SINGLE))]
    ids += rng.choices(pieces, k=rng.randrange(8)) if rng.random() < 0.6 else []
    for name, chance in ((END, 0.3), (PAD, 0.1), (OTHER, 0.05)):
        if rng.random() < chance:
            ids.insert(rng.randrange(len(ids) + 1), dlm.token_to_id(name))
    if rng.random() < 0.1:
        ids.insert(rng.randrange(len(ids) + 1), dlm.token_to_id(spelt(b"\xff")))
    cut = rng.randrange(len(ids) + 1)
    sure, seen = rng.choice((0.5, 0.8, 0.95, 1.0)), rng.choice((0.0, 0.0, 0.4))
    masked = [rng.random() >= seen for _ in ids[cut:]]
    return ids[:cut], ids[cut:], masked, [rng.random() < sure for _ in range(120)]


def accepted(ours, theirs, prefix, draft, masked, flags, most=None):
    aligned = ByteAlignment(ours, theirs).align(prefix, draft, masked)
    return aligned, aligned.accept(np.array(flags[aligned.first : len(aligned.ids)], bool), most)


@settings(max_examples=400, deadline=None)
@given(drafts())
def test_k_is_that_of_a_judge_that_scans_byte_by_byte(case):
    dlm, ours, guider, theirs, prefix, draft, masked, flags = case
    aligned, found = accepted(ours, theirs, prefix, draft, masked, flags)
    k, reach, ids = judge(dlm, guider, prefix, draft, masked, flags)
    assert (found.k, found.reach) == (k, reach)
    assert list(aligned.ids[: len(aligned.ids) - aligned.stops]) == ids


def test_a_judge_that_is_a_byte_off_disagrees():
    rng, apart = random.Random(4), {1: 0, -1: 0}
    for _ in range(200):
        (dlm, ours), (guider, theirs) = side(rng.randrange(30)), side(100 + rng.randrange(30))
        case = random_case(rng, dlm)
        found = accepted(ours, theirs, *case)[1]
        for late in apart:
            apart[late] += judge(dlm, guider, *case, late=late)[0] != found.k
    assert min(apart.values()) > 20


@settings(max_examples=200, deadline=None)
@given(drafts())
def test_what_is_accepted_lies_within_what_was_agreed_to(case):
    _, ours, _, theirs, prefix, draft, masked, flags = case
    _, found = accepted(ours, theirs, prefix, draft, masked, flags)
    hidden = [i for i, flag in enumerate(masked) if flag]
    assert 0 <= found.k <= len(hidden)
    upto = draft[: hidden[found.k - 1] + 1] if found.k else []
    start, end = (sum(len(ours.spell(t)) for t in ids) for ids in (prefix, prefix + upto))
    assert end <= found.reach
    assert 0 <= found.straddle_loss <= found.reach - max(start, end)
    capped = accepted(ours, theirs, prefix, draft, masked, flags, most=2)[1]
    assert (capped.k, capped.straddle_loss) == (min(found.k, 2), found.straddle_loss)


def test_nothing_depends_on_what_follows_the_first_refusal():
    rng, compared = random.Random(6), 0
    for _ in range(1500):
        (dlm, ours), (_, theirs) = side(rng.randrange(30)), side(100 + rng.randrange(30))
        prefix, draft, masked, flags = random_case(rng, dlm)
        aligned, found = accepted(ours, theirs, prefix, draft, masked, flags)
        refused = np.flatnonzero(aligned.judged & ~np.array(flags[: len(aligned.ids)], bool))
        if not len(refused):
            continue
        last = int(refused[0])
        flipped = [flag if j <= last else not flag for j, flag in enumerate(flags)]
        assert accepted(ours, theirs, prefix, draft, masked, flipped)[1] == found
        kept = 1 + int(np.searchsorted(aligned.draft_ends, aligned.ends[last]))
        _, new, hidden, _ = random_case(rng, dlm)
        changed = (prefix, draft[:kept] + new, masked[:kept] + hidden, flags)
        other, again = accepted(ours, theirs, *changed)
        if other.ids[: last + 1] == aligned.ids[: last + 1] and other.judged[last]:
            assert (again.k, again.reach) == (found.k, found.reach)
            compared += new != draft[kept:]
    assert compared > 30


@settings(max_examples=200, deadline=None)
@given(SEEDS, st.text(TEXT, max_size=30), st.integers(0, 30), st.integers(0, 2**32))
def test_equal_tokenizers_and_canonical_drafts_compare_id_by_id(seed, text, cut, flags):
    backend, same = side(seed)
    ids, rng = backend.encode(text, add_special_tokens=False).ids, random.Random(flags)
    cut, ended = min(cut, len(ids)), rng.random() < 0.3
    prefix, draft = ids[:cut], ids[cut:] + [same.stops[1]] * ended
    masked = [rng.random() < 0.8 for _ in draft]
    agrees = [rng.random() < 0.8 for _ in draft]
    aligned = ByteAlignment(same, same).align(prefix, draft, masked)
    assert list(aligned.ids) == ids + [same.stops[0]] * ended
    assert (aligned.first, aligned.judged[cut:].tolist()) == (cut, masked)
    assert aligned.covers().tolist() == [[j, j + 1] for j in range(cut, len(aligned.ids))]
    found = aligned.accept(np.array(agrees, bool))
    leading = takewhile(lambda pair: pair[0] or not pair[1], zip(agrees, masked, strict=True))
    assert found.k == sum(hidden for _, hidden in leading)
    assert found.straddle_loss == 0
