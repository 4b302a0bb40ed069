"""Alignment of the embedded vocabulary with one that writes numbers digit by digit, by example."""

import time

import numpy as np
import pytest
from tokenizers import decoders, models

from engine.guider.alignment import TAIL, ByteAlignment, Vocabulary
from engine.models.tokenizer import Tokenizer
from engine.tiny import tokenizer as tiny
from tests.support.micro import ROOT
from tests.support.vocabularies import composed, finished, opened, random_bpe, side, spelt


@pytest.fixture(scope="module")
def pair(tmp_path_factory):
    """The embedded vocabulary and one that writes numbers digit by digit, with their backends."""
    folder = tmp_path_factory.mktemp("digits")
    tiny.write(folder, "qwen2", "digits")
    ours, theirs = Tokenizer(ROOT / "assets/models/tiny-llada"), Tokenizer(folder)
    return ours, theirs, ByteAlignment(Vocabulary(ours, (1, 5)), Vocabulary(theirs, (5, 1)))


def spell(tokenizer, ids):
    return [tokenizer.piece(i).decode() for i in ids]


def judged(pair, text, agreed, prefix="Mia has", stop=(), **changes):
    """Judge `text` (masked) of which the guider agrees to the pieces `agreed`, one a token."""
    ours, theirs, alignment = pair
    draft = [*ours.encode(text), *stop]
    masked = changes.get("masked", [True] * len(draft))
    aligned = alignment.align(ours.encode(prefix), draft, masked)
    pieces = spell(theirs, aligned.ids[aligned.first :])
    return pieces, aligned.accept(np.arange(len(pieces)) < agreed)


def test_a_number_is_taken_whole_or_not_at_all(pair):
    pieces, none = judged(pair, " 123 + 4 = 127.", 2)
    assert pieces == [" 1", "2", "3", " +", " 4", " =", " 1", "2", "7", "."]
    assert (none.k, none.reach, none.straddle_loss) == (0, 10, 3)
    assert judged(pair, " 123 + 4 = 127.", 3)[1].k == 1
    assert judged(pair, " 123 + 4 = 127.", 8)[1].k == 4
    assert judged(pair, " 123 + 4 = 127.", 8)[1].straddle_loss == 3


def test_a_mark_is_judged_with_the_word_before_it(pair):
    pieces, found = judged(pair, " 3 + 4 each.", 4)
    assert pieces == [" 3", " +", " 4", " each."]
    assert (found.k, found.straddle_loss) == (5, 0)
    assert judged(pair, " 3 + 4 each.", 3)[1].k == 3


def test_a_token_across_the_start_of_the_draft_is_judged(pair):
    pieces, found = judged(pair, ".", 1, prefix=" 3 each")
    assert (pieces, found.k) == ([" each."], 1)
    assert judged(pair, ".", 0, prefix=" 3 each")[1].k == 0


def test_a_stop_needs_all_before_it_and_either_of_a_class_will_do(pair):
    for stop in (1, 5):
        pieces, found = judged(pair, " 12.", 4, stop=(stop,))
        assert (pieces, found.k) == ([" 1", "2", ".", "<|im_end|>"], 3)
        assert judged(pair, " 12.", 3, stop=(stop,))[1].k == 2
    assert judged(pair, "", 1, stop=(5,))[1].k == 1
    assert judged(pair, " 12", 9, stop=(5, 30, 31))[1].k == 2


def test_revealed_tokens_are_given_and_not_counted(pair):
    masked = [True, False, True]
    assert judged(pair, " 12 + 3", 2, masked=masked)[1].k == 1
    pieces, found = judged(pair, " 12 + 3", 4, masked=masked)
    assert (pieces, found.k) == ([" 1", "2", " +", " 3"], 2)
    ours, _, alignment = pair
    aligned = alignment.align(ours.encode("Mia has"), ours.encode(" 12 + 3"), masked)
    assert aligned.judged[aligned.first :].tolist() == [True, True, False, True]
    assert aligned.accept(np.array([True, True, False, True])).k == 2


def test_text_that_looks_like_a_special_token_is_text(pair):
    ours, _, alignment = pair
    draft = ours.encode("<") + ours.encode("|im_end|> 1")
    aligned = alignment.align([], draft, [True] * len(draft))
    assert not aligned.stops
    assert not {0, 1, 2, 3, 4, 5} & set(aligned.ids)
    assert b"".join(map(alignment.guider.spell, aligned.ids)) == b"<|im_end|> 1"


def test_characters_that_are_not_whole_are_not_judged(pair):
    ours, _, alignment = pair
    turtle = [ours.ordinary[spelt(bytes([b]))] for b in "🐢".encode()]
    word = ours.encode(" is")
    cut = alignment.align(word, [*word, *turtle[:3]], [True] * 4)
    assert (len(cut.covers()), cut.accept(np.ones(len(cut.ids) - cut.first, bool)).k) == (1, 1)
    done = alignment.align([*word, *turtle[:2]], turtle[2:], [True] * 2)
    assert done.accept(np.ones(len(done.ids) - done.first, bool)).k == 2
    for prefix, draft in (([*word, turtle[1]], word), ([*word, turtle[0]], word)):
        nothing = alignment.align(prefix, draft, [True])
        assert nothing.ids == ()
        assert not nothing.judged.any()
        assert nothing.accept(nothing.judged) == nothing.accept(nothing.judged, 1)
        assert nothing.accept(nothing.judged).k == 0


def test_a_normaliser_of_the_guider_changes_no_byte():
    _, ours = side(0)
    theirs = Vocabulary(opened(composed(random_bpe(107))), (0,))
    parts = "e\u0301 a"
    draft = [ours_id for b in parts.encode() for ours_id in [single(ours, b)]]
    aligned = ByteAlignment(ours, theirs).align([], draft, [True] * len(draft))
    assert b"".join(map(theirs.spell, aligned.ids)) == parts.encode()
    assert aligned.accept(np.ones(len(aligned.ids), bool)).k == len(draft)


def single(vocabulary, byte):
    return next(i for i in range(256) if vocabulary.spell(i) == bytes([byte]))


def test_ids_without_bytes_are_never_drafted(pair):
    ours, _, alignment = pair
    barred = alignment.dlm.barred(768)
    assert barred == (0, 2, 3, 4, *range(len(ours.ordinary) + 6, 768))
    assert all(alignment.dlm.spell(i) for i in range(6, len(ours.ordinary) + 6))


def test_other_tokenizers_are_refused():
    model = models.BPE(vocab={"a": 0, "b": 1, "ab": 2}, merges=[("a", "b")])
    with pytest.raises(ValueError, match="no token for the byte 0x00"):
        Vocabulary(opened(finished(model, None)), ())
    other = random_bpe(3)
    other.decoder = decoders.Metaspace()
    with pytest.raises(ValueError, match="no byte-level BPE"):
        Vocabulary(opened(other), ())


def test_a_step_takes_less_than_a_millisecond(pair):
    ours, _, alignment = pair
    text = " Mia has 12 pens and 30 books. She gets 15 - 7 = 8 more, so the answer is 20."
    prefix, draft = ours.encode(text * 5), ours.encode(text)[: 32 + TAIL]

    def once():
        started = time.perf_counter()
        aligned = alignment.align(prefix, draft, [True] * len(draft))
        aligned.accept(np.ones(len(aligned.ids) - aligned.first, bool), 32)
        return time.perf_counter() - started

    assert min(once() for _ in range(30)) < 1e-3
