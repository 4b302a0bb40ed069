"""Byte alignment of random vocabularies, compared with a reference that scans byte by byte."""

import random
from itertools import takewhile

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.guider.alignment import ByteAlignment, align_shared
from tests.support.vocabularies import (
    END,
    OTHER,
    PAD,
    SINGLE,
    TEXT,
    byte_level_name,
    random_text,
    random_vocabulary,
    reference_alignment,
)

SEEDS = st.integers(0, 29)


def two_vocabularies(seed, other):
    return random_vocabulary(seed), random_vocabulary(100 + other)


@st.composite
def drafts(draw):
    """Two vocabularies, a response, a draft with masked and known positions, and decisions."""
    (dlm, ours), (guider, theirs) = two_vocabularies(draw(SEEDS), draw(SEEDS))
    rng = random.Random(draw(st.integers(0, 2**32)))
    return (dlm, ours, guider, theirs, *random_case(rng, dlm))


def random_case(rng, dlm):
    """Response, draft, masked positions and decisions.

    The ids may be canonical or not, are cut anywhere, and can hold a stop or an invalid byte.
    """
    ids = dlm.encode(random_text(rng, rng.randrange(20)), add_special_tokens=False).ids
    pieces = [
        *range(256, dlm.get_vocab_size() - 3),
        *map(dlm.token_to_id, map(byte_level_name, SINGLE)),
    ]
    ids += rng.choices(pieces, k=rng.randrange(8)) if rng.random() < 0.6 else []
    for name, chance in ((END, 0.3), (PAD, 0.1), (OTHER, 0.05)):
        if rng.random() < chance:
            ids.insert(rng.randrange(len(ids) + 1), dlm.token_to_id(name))
    if rng.random() < 0.1:
        ids.insert(rng.randrange(len(ids) + 1), dlm.token_to_id(byte_level_name(b"\xff")))
    cut = rng.randrange(len(ids) + 1)
    sure, seen = rng.choice((0.5, 0.8, 0.95, 1.0)), rng.choice((0.0, 0.0, 0.4))
    masked = [rng.random() >= seen for _ in ids[cut:]]
    return ids[:cut], ids[cut:], masked, [rng.random() < sure for _ in range(120)]


def align_and_accept(ours, theirs, prefix, draft, masked, flags, most=None):
    aligned = ByteAlignment(ours, theirs).align(prefix, draft, masked)
    return aligned, aligned.accept(np.array(flags[aligned.first : len(aligned.ids)], bool), most)


@settings(max_examples=400, deadline=None)
@given(drafts())
def test_the_count_equals_a_byte_by_byte_reference(case):
    dlm, ours, guider, theirs, prefix, draft, masked, flags = case
    aligned, found = align_and_accept(ours, theirs, prefix, draft, masked, flags)
    count, end, ids = reference_alignment(dlm, guider, prefix, draft, masked, flags)
    assert (found.count, found.agreed_end) == (count, end)
    assert list(aligned.ids[: len(aligned.ids) - aligned.ends_with_stop]) == ids


def test_a_reference_that_is_one_byte_off_disagrees():
    rng, apart = random.Random(4), {1: 0, -1: 0}
    for _ in range(200):
        (dlm, ours), (guider, theirs) = two_vocabularies(rng.randrange(30), rng.randrange(30))
        case = random_case(rng, dlm)
        found = align_and_accept(ours, theirs, *case)[1]
        for late in apart:
            apart[late] += reference_alignment(dlm, guider, *case, late=late)[0] != found.count
    assert min(apart.values()) > 20


@settings(max_examples=200, deadline=None)
@given(drafts())
def test_accepted_tokens_end_within_the_agreed_bytes(case):
    _, ours, _, theirs, prefix, draft, masked, flags = case
    _, found = align_and_accept(ours, theirs, prefix, draft, masked, flags)
    hidden = [i for i, flag in enumerate(masked) if flag]
    assert 0 <= found.count <= len(hidden)
    upto = draft[: hidden[found.count - 1] + 1] if found.count else []
    start, end = (sum(len(ours.token_bytes(t)) for t in ids) for ids in (prefix, prefix + upto))
    assert end <= found.agreed_end
    assert 0 <= found.straddle_loss <= found.agreed_end - max(start, end)
    capped = align_and_accept(ours, theirs, prefix, draft, masked, flags, most=2)[1]
    assert (capped.count, capped.straddle_loss) == (min(found.count, 2), found.straddle_loss)


def test_nothing_after_the_first_refusal_changes_the_result():
    rng, compared = random.Random(6), 0
    for _ in range(1500):
        (dlm, ours), (_, theirs) = two_vocabularies(rng.randrange(30), rng.randrange(30))
        prefix, draft, masked, flags = random_case(rng, dlm)
        aligned, found = align_and_accept(ours, theirs, prefix, draft, masked, flags)
        agrees = np.array(flags[aligned.first : len(aligned.ids)], bool)
        refused = np.flatnonzero(aligned.to_verify & ~agrees)
        if not len(refused):
            continue
        last = aligned.first + int(refused[0])
        flipped = [flag if j <= last else not flag for j, flag in enumerate(flags)]
        assert align_and_accept(ours, theirs, prefix, draft, masked, flipped)[1] == found
        kept = 1 + int(np.searchsorted(aligned.position_ends, aligned.token_ends[last]))
        _, new, hidden, _ = random_case(rng, dlm)
        changed = (prefix, draft[:kept] + new, masked[:kept] + hidden, flags)
        other, again = align_and_accept(ours, theirs, *changed)
        if other.ids[: last + 1] == aligned.ids[: last + 1] and other.to_verify[last - other.first]:
            assert (again.count, again.agreed_end) == (found.count, found.agreed_end)
            compared += new != draft[kept:]
    assert compared > 30


@settings(max_examples=200, deadline=None)
@given(SEEDS, st.text(TEXT, max_size=30), st.integers(0, 30), st.integers(0, 2**32))
def test_equal_tokenizers_compare_canonical_drafts_id_by_id(seed, text, cut, flags):
    backend, same = random_vocabulary(seed)
    ids, rng = backend.encode(text, add_special_tokens=False).ids, random.Random(flags)
    cut, ended = min(cut, len(ids)), rng.random() < 0.3
    prefix, draft = ids[:cut], ids[cut:] + [same.stop_ids[1]] * ended
    masked = [rng.random() < 0.8 for _ in draft]
    agrees = [rng.random() < 0.8 for _ in draft]
    aligned = ByteAlignment(same, same).align(prefix, draft, masked)
    assert list(aligned.ids) == ids + [same.stop_ids[0]] * ended
    assert (aligned.first, aligned.to_verify.tolist()) == (cut, masked)
    assert aligned.position_spans().tolist() == [[j, j + 1] for j in range(len(draft))]
    found = aligned.accept(np.array(agrees, bool))
    leading = takewhile(lambda pair: pair[0] or not pair[1], zip(agrees, masked, strict=True))
    assert found.count == sum(hidden for _, hidden in leading)
    assert found.straddle_loss == 0
    shared = align_shared(prefix, draft, masked, same.stop_ids, same.stop_ids[0])
    assert (shared.ids, shared.first) == (aligned.ids, cut)
    assert shared.to_verify.tolist() == aligned.to_verify.tolist()
    assert shared.position_spans().tolist() == aligned.position_spans().tolist()
    assert shared.accept(np.array(agrees, bool)).count == found.count
