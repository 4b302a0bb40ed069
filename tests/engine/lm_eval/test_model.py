"""The engine as a model of the harness: answers, log-likelihoods and errors."""

from itertools import combinations
from types import SimpleNamespace

import pytest
import torch

pytest.importorskip("lm_eval")

from engine.evaluate.exam import evaluate
from engine.lm_eval.likelihood import continuation_logits, log_likelihood
from engine.lm_eval.model import DriftscopeLM, cut
from engine.tiny.corpus import exam_questions
from tests.support.micro import MASK, MicroAdapter, fill, make_info


@pytest.fixture(scope="module")
def model():
    return DriftscopeLM(
        "tiny-llada", batch_size=2, cache="dual", unmasker="threshold", threshold=0.9
    )


def asked(*args):
    return SimpleNamespace(args=args)


def test_answers_equal_those_of_the_exam(model):
    questions = exam_questions(4, 7, 0, "short_problems")
    wanted = [one.text for one in evaluate(model.model, model.spec, questions, 1, False)]
    prompts = [model.apply_chat_template([{"role": "user", "content": q}]) for _, q in questions]
    assert model.generate_until([asked(p, {"until": []}) for p in prompts]) == wanted


def test_a_stop_string_of_several_tokens_cuts_the_text(model):
    ((_, question),) = exam_questions(1, 7, 0, "short_problems")
    prompt = model.apply_chat_template([{"role": "user", "content": question}])
    (whole,) = model.generate_until([asked(prompt, {"until": []})])
    stop = " ".join(whole.split(" ")[3:6])
    assert len(model.tok_encode(stop)) > 1
    assert model.generate_until([asked(prompt, {"until": [stop]})]) == [whole[: whole.find(stop)]]
    assert cut("abc", [""]) == "abc"


@pytest.mark.parametrize("shift", [0, 1])
def test_the_estimate_approaches_the_mean_over_all_masks(shift):
    adapter = fill(MicroAdapter(make_info(shift)).double(), 3)
    context, target = [5, 6, 7], [8, 9, 10]
    exact = 0.0
    for count in (1, 2, 3):
        sets = list(combinations(range(3), count))
        for chosen in sets:
            shown = [MASK if i in chosen else token for i, token in enumerate(target)]
            canvas = torch.tensor([context + shown])
            logits = continuation_logits(adapter, canvas, 3)[0].log_softmax(-1)
            exact += sum(float(logits[i, target[i]]) for i in chosen) / count / len(sets)
    found = [log_likelihood(adapter, context, target, 64, seed=seed) for seed in range(40)]
    spread = torch.tensor(found).std().item() / 40**0.5
    assert sum(found) / 40 == pytest.approx(exact, abs=4 * spread)
    assert sum(found) / 40 != pytest.approx(exact / 3, abs=4 * spread)
    assert found[0] == log_likelihood(adapter, context, target, 64, seed=0)
    other_batch = log_likelihood(adapter, context, target, 64, batch=7, seed=0)
    assert other_batch == pytest.approx(found[0], abs=1e-9)
    assert found[0] != found[1]


def test_what_has_no_meaning_is_refused_by_name(model):
    with pytest.raises(NotImplementedError, match="loglikelihood_rolling"):
        model.loglikelihood_rolling([asked("a")])
    with pytest.raises(ValueError, match=r"treshold: unknown.*threshold"):
        DriftscopeLM("tiny-llada", unmasker="threshold", treshold=0.9)
    with pytest.raises(ValueError, match="unmasker: autoregressive has no denoising steps"):
        DriftscopeLM("tiny-llada", unmasker="autoregressive")
    with pytest.raises(ValueError, match="batch_size"):
        DriftscopeLM("tiny-llada", batch_size="auto")
    assert model.loglikelihood([asked("a", "")]) == [(0.0, True)]
