"""Two vocabularies: found to be shared or not, what is barred, and both paths told the same."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from engine.config.spec import RunSpec
from engine.evaluate.exam import sit
from engine.guider.alignment import ByteAlignment, Vocabulary
from engine.guider.model import CachedReader
from engine.guider.run_guider import GuiderMatch
from engine.guider.verification import Rule, Verifier
from engine.guider.vocabularies import pair_vocabularies, reads_alike, same_vocabulary
from engine.models.loading.families import embedded_models, info_of
from engine.models.tokenizer import Tokenizer
from engine.serve.guider_pool import embedded_guiders
from engine.serve.model_pool import ModelPool
from engine.tiny import tokenizer as tiny
from engine.tiny.exam import exam
from engine.unmask.methods.guided import Guided
from tests.support.micro import ROOT, TINY

QWEN = TINY.parent / "tiny-qwen2"


@pytest.fixture(scope="module")
def library():
    return ModelPool(embedded_models(ROOT / "assets"))


@pytest.fixture(scope="module")
def guider(library):
    spec = RunSpec(unmasker="guided", dtype="float64")
    model = library.load(spec)
    run_guider = model.guide([replace(spec, prompt=exam(1, 3)[0][1])], [[3, 4]])
    return run_guider, model


@pytest.fixture
def vocabulary(tmp_path):
    def written(family, kind=None):
        tiny.write(tmp_path / family, family, *([kind] if kind else []))
        return Tokenizer(tmp_path / family)

    return written


def test_the_embedded_guider_is_found_and_is_no_model():
    assert "tiny-qwen2" in embedded_guiders()
    assert not set(embedded_guiders()) & set(embedded_models(ROOT / "assets"))


def test_a_shared_vocabulary_is_found_out(vocabulary):
    ours, theirs = Tokenizer(TINY), Tokenizer(QWEN)
    assert same_vocabulary(ours, theirs)
    other = vocabulary("qwen2", "digits")
    assert not same_vocabulary(ours, other)
    assert pair_vocabularies(ours, (1, 5), 768, theirs, (5, 1), 768).shared
    assert not pair_vocabularies(ours, (1, 5), 768, other, (5, 1), 768).shared


def test_specials_without_a_counterpart_and_spare_rows_are_barred():
    ours, theirs = Tokenizer(TINY), Tokenizer(QWEN)
    used = max(ours.ordinary.values()) + 1
    pair = pair_vocabularies(ours, (1, 5), 768, theirs, (5, 1), 800)
    assert pair.barred == (0, 2, 3, 4, *range(used, 768))
    assert pair.guider_barred == (0, 2, 3, 4, *range(used, 800))
    assert pair.guider_stops == (5, 1)


def test_specials_that_are_the_same_in_both_may_be_drafted(vocabulary):
    dream, qwen = vocabulary("dream"), vocabulary("qwen2")
    pair = pair_vocabularies(dream, (1, 5), 768, qwen, (5,), 700)
    assert 3 not in pair.barred  # <|im_start|> in both
    assert {0, 2} <= set(pair.barred)
    assert set(range(700, 768)) <= set(pair.barred)
    assert set(pair.guider_stops) == {5, 1}
    only = pair_vocabularies(dream, (5,), 768, qwen, (5, 1), 768)
    assert 1 in only.barred  # an end to the guider alone


def test_a_prompt_is_shared_where_its_specials_are(vocabulary):
    ours, theirs = Tokenizer(TINY), Tokenizer(QWEN)
    assert reads_alike([7, 300, 5 + 5], ours, theirs)
    assert not reads_alike([7, 3, 300], ours, theirs)
    dream, qwen = vocabulary("dream"), vocabulary("qwen2")
    asked = RunSpec(prompt="How many?")
    assert reads_alike(dream.encode_spec(asked), dream, qwen)
    assert not reads_alike(ours.encode_spec(asked), ours, theirs)


def test_ends_are_those_of_the_config_and_of_the_tokenizer(guider):
    pair, model = guider[0].pair, guider[1]
    assert set(info_of(TINY).stop_ids) == {1}
    assert set(pair.stops) == set(model.adapter.info.stop_ids) == {1, 5}


def test_the_guider_reads_the_turns_in_its_own_template():
    match = GuiderMatch.of(Tokenizer(TINY), info_of(TINY), QWEN)
    asked = RunSpec(prompt="How many?")
    ids = match.dlm.encode_spec(asked)
    found = match.prompt(Guided(), asked, ids)
    assert found == tuple(match.guider.encode_spec(asked)) != tuple(ids)
    plain = replace(asked, chat=False)
    assert match.prompt(Guided(), plain, match.dlm.encode_spec(plain)) == tuple(
        match.dlm.encode_spec(plain)
    )
    with pytest.raises(ValueError, match=r"^guided\.guider: .* exceed its context of 1024"):
        match.prompt(Guided(), replace(asked, gen_length=1024), ids)


@pytest.mark.parametrize("name", ["top1", "rel", "topk"])
@pytest.mark.parametrize("cut", [0, 4, 11])
def test_both_paths_accept_the_same_of_a_canonical_draft(guider, name, cut):
    run_guider, model = guider
    shared, ids = run_guider.pair, written(run_guider)
    assert model.tokenizer.encode(model.tokenizer.decode(ids)) == ids
    ours = Vocabulary(model.tokenizer, (1, 5))
    theirs = Vocabulary(Tokenizer(QWEN), shared.guider_stops)
    bytewise = replace(shared, alignment=ByteAlignment(ours, theirs))
    rule, found = Rule(name, 2, 0.5), []
    for flipped in (None, 2, 7):
        draft = ids[cut:]
        if flipped is not None:
            draft = [*draft[:flipped], 560, *draft[flipped + 1 :]]
        told = []
        for pair in (shared, bytewise):
            judge = Verifier(CachedReader(bound(run_guider)), run_guider.prompts[0], pair, rule)
            ruling = judge.rule_on(ids[:cut], draft, [True] * len(draft), [1.0] * len(draft), 32)
            told.append((ruling.accepted, len(judge.reader.ids), ruling.heard.ok.tolist()))
        assert told[0] == told[1]
        found.append(told[0][0])
    assert found == [len(ids) - cut, 2, 7]


def written(run_guider):
    """The guider's own answer."""
    reader, ids = bound(run_guider), list(run_guider.prompts[0])
    while len(ids) < len(run_guider.prompts[0]) + 24:
        z = reader.model(torch.tensor([ids])).logits[:, -1:]
        ids.append(int(run_guider.pair.distribution(z[0])[0].argmax()))
        if ids[-1] in run_guider.pair.guider_stops:
            return ids[len(run_guider.prompts[0]) : -1]
    return ids[len(run_guider.prompts[0]) :]


def bound(run_guider):
    """The guider that a run's readers read with."""
    return run_guider.open()._guider


def test_a_batch_of_problems_is_guided_as_each_alone(library):
    spec = RunSpec(
        unmasker="guided", cache="freecache", gen_length=32, block_length=32, dtype="float64"
    )
    model, questions = library.load(spec), exam(3, 7)
    together = list(sit(model, spec, questions, batch=3))
    alone = [next(sit(model, spec, [one])) for one in questions]
    assert [one.ids for one in together] == [one.ids for one in alone]
    assert len({one.ids for one in alone}) == 3
    assert np.all([one.nfe <= 32 for one in alone])
