"""Vocabulary pairs: shared or not, excluded ids, and equal results of both alignments."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from engine.config.spec import RunSpec
from engine.evaluate.exam import evaluate
from engine.guider.alignment import ByteAlignment, ByteVocabulary
from engine.guider.model import GuiderReader
from engine.guider.run_guider import GuiderMatch
from engine.guider.verification import AcceptanceRule, Verifier
from engine.guider.vocabularies import pair_vocabularies, same_prompt_tokens
from engine.models.loading.families import embedded_guiders, embedded_models, read_model_info
from engine.models.tokenizer import Tokenizer
from engine.serve.model_pool import ModelPool
from engine.tiny.corpus import exam_questions
from engine.unmask.methods.guided import Guided
from tests.support.micro import ROOT, TINY

QWEN = TINY.parent / "tiny-qwen2"
DREAM, DIGITS = TINY.parent / "tiny-dream", TINY.parent / "tiny-qwen2-digits"


@pytest.fixture(scope="module")
def library():
    return ModelPool(embedded_models(ROOT / "assets"))


@pytest.fixture(scope="module")
def guider(library):
    spec = RunSpec(unmasker="guided", dtype="float64")
    model = library.load(spec)
    run_guider = model.make_run_guider(
        [replace(spec, prompt=exam_questions(1, 3, family="short_problems")[0][1])], [[3, 4]]
    )
    return run_guider, model


@pytest.fixture(scope="module")
def greedy(guider):
    """The guider's greedy answer; tests must not change it."""
    return greedy_answer(guider[0])


def test_the_embedded_guider_is_found_and_is_no_model():
    found = embedded_guiders(ROOT / "assets")
    assert "tiny-qwen2" in found
    assert not set(found) & set(embedded_models(ROOT / "assets"))


def test_a_shared_vocabulary_is_detected():
    ours, theirs = Tokenizer(TINY), Tokenizer(QWEN)
    other = Tokenizer(DIGITS)
    assert pair_vocabularies(ours, (1, 5), 768, theirs, (5, 1), 768).shared
    assert not pair_vocabularies(ours, (1, 5), 768, other, (5, 1), 768).shared


def test_specials_without_a_counterpart_and_spare_rows_are_excluded():
    ours, theirs = Tokenizer(TINY), Tokenizer(QWEN)
    used = max(ours.ordinary.values()) + 1
    pair = pair_vocabularies(ours, (1, 5), 1024, theirs, (5, 1), 1056)
    assert pair.excluded_ids == (0, 2, 3, 4, *range(used, 1024))
    assert pair.guider_excluded_ids == (0, 2, 3, 4, *range(used, 1056))
    assert pair.guider_stop_ids == (5, 1)


def test_specials_with_equal_ids_are_not_excluded():
    dream, qwen2 = Tokenizer(DREAM), Tokenizer(QWEN)
    pair = pair_vocabularies(dream, (1, 5), 768, qwen2, (5,), 700)
    assert 3 not in pair.excluded_ids  # <|im_start|> in both
    assert {0, 2} <= set(pair.excluded_ids)
    assert set(range(700, 768)) <= set(pair.excluded_ids)
    assert set(pair.guider_stop_ids) == {5, 1}
    only = pair_vocabularies(dream, (5,), 768, qwen2, (5, 1), 768)
    assert 1 in only.excluded_ids  # a stop token of the guider alone


def test_a_prompt_is_shared_if_its_specials_are():
    ours, theirs = Tokenizer(TINY), Tokenizer(QWEN)
    assert same_prompt_tokens([7, 300, 5 + 5], ours, theirs)
    assert not same_prompt_tokens([7, 3, 300], ours, theirs)
    dream, qwen2 = Tokenizer(DREAM), Tokenizer(QWEN)
    spec = RunSpec(prompt="How many?")
    assert same_prompt_tokens(
        dream.encode_prompt(spec.prompt, spec.messages, spec.chat), dream, qwen2
    )
    assert not same_prompt_tokens(
        ours.encode_prompt(spec.prompt, spec.messages, spec.chat), ours, theirs
    )


def test_stop_ids_come_from_the_config_and_the_tokenizer(guider):
    pair, model = guider[0].vocabularies, guider[1]
    assert set(read_model_info(TINY).stop_ids) == {1}
    assert set(pair.stop_ids) == set(model.adapter.info.stop_ids) == {1, 5}


def test_the_guider_reads_the_prompt_in_its_own_template():
    match = GuiderMatch.from_folder(Tokenizer(TINY), read_model_info(TINY), QWEN)
    spec = RunSpec(prompt="How many?")
    ids = match.model_tokenizer.encode_prompt(spec.prompt, spec.messages, spec.chat)
    found = match.prompt(Guided(), spec, ids)
    assert (
        found
        == tuple(match.tokenizer.encode_prompt(spec.prompt, spec.messages, spec.chat))
        != tuple(ids)
    )
    plain = replace(spec, chat=False)
    assert match.prompt(
        Guided(),
        plain,
        match.model_tokenizer.encode_prompt(plain.prompt, plain.messages, plain.chat),
    ) == tuple(match.model_tokenizer.encode_prompt(plain.prompt, plain.messages, plain.chat))
    with pytest.raises(ValueError, match=r"^guided\.guider: .* exceed its context of 1024"):
        match.prompt(Guided(), replace(spec, gen_length=1024), ids)


@pytest.mark.parametrize("name", ["top1", "rel", "topk"])
@pytest.mark.parametrize("cut", [0, 4, 11])
def test_both_alignments_accept_the_same_part_of_a_canonical_draft(guider, greedy, name, cut):
    (run_guider, model), ids = guider, greedy
    shared = run_guider.vocabularies
    assert model.tokenizer.encode(model.tokenizer.decode(ids)) == ids
    ours = ByteVocabulary(model.tokenizer, (1, 5))
    theirs = ByteVocabulary(Tokenizer(QWEN), shared.guider_stop_ids)
    bytewise = replace(shared, alignment=ByteAlignment(ours, theirs))
    rule, counts = AcceptanceRule(name, 2, 0.5), []
    for flipped in (None, 2, 7):
        draft = ids[cut:]
        if flipped is not None:
            draft = [*draft[:flipped], 560, *draft[flipped + 1 :]]
        results = []
        for pair in (shared, bytewise):
            verifier = Verifier(
                GuiderReader(guider_of(run_guider)), run_guider.prompts[0], pair, rule
            )
            verdict = verifier.verify(ids[:cut], draft, [True] * len(draft), [1.0] * len(draft), 32)
            results.append(
                (verdict.accepted, len(verifier.reader.ids), verdict.verification.ok.tolist())
            )
        assert results[0] == results[1]
        counts.append(results[0][0])
    assert counts == [len(ids) - cut, 2, 7]


def greedy_answer(run_guider):
    """The guider's greedy answer."""
    reader, ids = guider_of(run_guider), list(run_guider.prompts[0])
    while len(ids) < len(run_guider.prompts[0]) + 24:
        z = reader.model(torch.tensor([ids])).logits[:, -1:]
        ids.append(int(run_guider.vocabularies.guider_log_probs(z[0])[0].argmax()))
        if ids[-1] in run_guider.vocabularies.guider_stop_ids:
            return ids[len(run_guider.prompts[0]) : -1]
    return ids[len(run_guider.prompts[0]) :]


def guider_of(run_guider):
    """The guider of a run's readers."""
    return run_guider.open_reader()._guider


def test_a_batch_of_problems_is_guided_as_each_alone(library):
    spec = RunSpec(
        unmasker="guided", cache="freecache", gen_length=32, block_length=32, dtype="float64"
    )
    model, questions = library.load(spec), exam_questions(3, 7, family="short_problems")
    together = evaluate(model, spec, questions, 3, False)
    alone = [evaluate(model, spec, [one], 1, False)[0] for one in questions]
    assert [one.ids for one in together] == [one.ids for one in alone]
    assert len({one.ids for one in alone}) == 3
    assert np.all([one.nfe <= 32 for one in alone])
