"""Byte alignment of the embedded vocabulary with one that has a token for each digit."""

import time

import numpy as np
import pytest
from tokenizers import decoders, models

from engine.guider.alignment import LOOKAHEAD, ByteAlignment, ByteVocabulary
from engine.models.tokenizer import Tokenizer
from tests.support.micro import ROOT
from tests.support.vocabularies import (
    byte_level_name,
    engine_tokenizer,
    random_bpe,
    random_vocabulary,
    with_normalizer,
    with_special_tokens,
)


@pytest.fixture(scope="module")
def vocabularies():
    """Both tokenizers and their alignment."""
    folder = ROOT / "assets/models"
    ours, theirs = Tokenizer(folder / "tiny-llada"), Tokenizer(folder / "tiny-qwen2-digits")
    return ours, theirs, ByteAlignment(ByteVocabulary(ours, (1, 5)), ByteVocabulary(theirs, (5, 1)))


def token_texts(tokenizer, ids):
    return [tokenizer.piece(i).decode() for i in ids]


def align_and_accept(vocabularies, text, agreed, prefix="Mia has", stop=(), **changes):
    """Align a masked `text`, of which the guider accepts the first `agreed` tokens."""
    ours, theirs, alignment = vocabularies
    draft = [*ours.encode(text), *stop]
    masked = changes.get("masked", [True] * len(draft))
    aligned = alignment.align(ours.encode(prefix), draft, masked)
    pieces = token_texts(theirs, aligned.ids[aligned.first :])
    return pieces, aligned.accept(np.arange(len(pieces)) < agreed)


def test_a_number_is_accepted_whole_or_not_at_all(vocabularies):
    pieces, none = align_and_accept(vocabularies, " 123 + 4 = 127.", 2)
    assert pieces == [" 1", "2", "3", " +", " 4", " =", " 1", "2", "7", "."]
    assert (none.count, none.agreed_end, none.straddle_loss) == (0, 10, 3)
    assert align_and_accept(vocabularies, " 123 + 4 = 127.", 3)[1].count == 1
    assert align_and_accept(vocabularies, " 123 + 4 = 127.", 8)[1].count == 4
    assert align_and_accept(vocabularies, " 123 + 4 = 127.", 8)[1].straddle_loss == 3


def test_a_punctuation_mark_is_verified_with_the_word_before_it(vocabularies):
    pieces, found = align_and_accept(vocabularies, " 3 + 4 each.", 4)
    assert pieces == [" 3", " +", " 4", " each."]
    assert (found.count, found.straddle_loss) == (5, 0)
    assert align_and_accept(vocabularies, " 3 + 4 each.", 3)[1].count == 3


def test_a_token_across_the_start_of_the_draft_is_verified(vocabularies):
    pieces, found = align_and_accept(vocabularies, ".", 1, prefix=" 3 each")
    assert (pieces, found.count) == ([" each."], 1)
    assert align_and_accept(vocabularies, ".", 0, prefix=" 3 each")[1].count == 0


def test_a_stop_needs_all_tokens_before_it_and_any_stop_id_counts(vocabularies):
    for stop in (1, 5):
        pieces, found = align_and_accept(vocabularies, " 12.", 4, stop=(stop,))
        assert (pieces, found.count) == ([" 1", "2", ".", "<|im_end|>"], 3)
        assert align_and_accept(vocabularies, " 12.", 3, stop=(stop,))[1].count == 2
    assert align_and_accept(vocabularies, "", 1, stop=(5,))[1].count == 1
    assert align_and_accept(vocabularies, " 12", 9, stop=(5, 30, 31))[1].count == 2


def test_known_tokens_of_the_draft_are_not_counted(vocabularies):
    masked = [True, False, True]
    assert align_and_accept(vocabularies, " 12 + 3", 2, masked=masked)[1].count == 1
    pieces, found = align_and_accept(vocabularies, " 12 + 3", 4, masked=masked)
    assert (pieces, found.count) == ([" 1", "2", " +", " 3"], 2)
    ours, _, alignment = vocabularies
    aligned = alignment.align(ours.encode("Mia has"), ours.encode(" 12 + 3"), masked)
    assert aligned.to_verify.tolist() == [True, True, False, True]
    assert aligned.accept(np.array([True, True, False, True])).count == 2


def test_text_that_looks_like_a_special_token_is_text(vocabularies):
    ours, _, alignment = vocabularies
    draft = ours.encode("<") + ours.encode("|im_end|> 1")
    aligned = alignment.align([], draft, [True] * len(draft))
    assert not aligned.ends_with_stop
    assert not {0, 1, 2, 3, 4, 5} & set(aligned.ids)
    assert b"".join(map(alignment.guider.token_bytes, aligned.ids)) == b"<|im_end|> 1"


def test_incomplete_characters_are_not_verified(vocabularies):
    ours, _, alignment = vocabularies
    turtle = [ours.ordinary[byte_level_name(bytes([b]))] for b in "🐢".encode()]
    word = ours.encode(" is")
    cut = alignment.align(word, [*word, *turtle[:3]], [True] * 4)
    assert (
        len(cut.position_spans()),
        cut.accept(np.ones(len(cut.ids) - cut.first, bool)).count,
    ) == (1, 1)
    done = alignment.align([*word, *turtle[:2]], turtle[2:], [True] * 2)
    assert done.accept(np.ones(len(done.ids) - done.first, bool)).count == 2
    for prefix, draft in (([*word, turtle[1]], word), ([*word, turtle[0]], word)):
        nothing = alignment.align(prefix, draft, [True])
        assert nothing.ids == ()
        assert not nothing.to_verify.any()
        assert nothing.accept(nothing.to_verify) == nothing.accept(nothing.to_verify, 1)
        assert nothing.accept(nothing.to_verify).count == 0


def test_a_normaliser_of_the_guider_changes_no_byte():
    _, ours = random_vocabulary(0)
    theirs = ByteVocabulary(engine_tokenizer(with_normalizer(random_bpe(107))), (0,))
    parts = "e\u0301 a"
    draft = [id_of_byte(ours, b) for b in parts.encode()]
    aligned = ByteAlignment(ours, theirs).align([], draft, [True] * len(draft))
    assert b"".join(map(theirs.token_bytes, aligned.ids)) == parts.encode()
    assert aligned.accept(np.ones(len(aligned.ids), bool)).count == len(draft)


def id_of_byte(vocabulary, byte):
    return next(i for i in range(256) if vocabulary.token_bytes(i) == bytes([byte]))


def test_ids_without_bytes_are_never_drafted(vocabularies):
    ours, _, alignment = vocabularies
    excluded_ids = alignment.model.excluded_ids(768)
    assert excluded_ids == (0, 2, 3, 4, *range(len(ours.ordinary) + 6, 768))
    assert all(alignment.model.token_bytes(i) for i in range(6, len(ours.ordinary) + 6))


def test_other_tokenizers_are_refused():
    model = models.BPE(vocab={"a": 0, "b": 1, "ab": 2}, merges=[("a", "b")])
    with pytest.raises(ValueError, match="no token for the byte 0x00"):
        ByteVocabulary(engine_tokenizer(with_special_tokens(model, None)), ())
    other = random_bpe(3)
    other.decoder = decoders.Metaspace()
    with pytest.raises(ValueError, match="no byte-level BPE"):
        ByteVocabulary(engine_tokenizer(other), ())


def test_a_step_takes_less_than_a_millisecond(vocabularies):
    ours, _, alignment = vocabularies
    text = " Mia has 12 pens and 30 books. She gets 15 - 7 = 8 more, so the answer is 20."
    prefix, draft = ours.encode(text * 5), ours.encode(text)[: 32 + LOOKAHEAD]

    def once():
        started = time.perf_counter()
        aligned = alignment.align(prefix, draft, [True] * len(draft))
        aligned.accept(np.ones(len(aligned.ids) - aligned.first, bool), 32)
        return time.perf_counter() - started

    assert min(once() for _ in range(30)) < 1e-3
