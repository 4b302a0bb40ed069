"""The digits vocabulary: its tokens, and the training of a causal model with it."""

import json

import pytest
import torch
from transformers import AutoModelForCausalLM

from engine.evaluate.causal_exam import evaluate_causal
from engine.models.tokenizer import Tokenizer
from engine.tiny import corpus, export, tokenizer
from engine.tiny.batches import BatchStream
from engine.tiny.network import NetworkShape
from engine.tiny.training_inputs import Recipe
from engine.tiny.training_state import initial_state
from tests.engine.tiny.test_train import SMALL, train
from tests.support.micro import ROOT

QWEN = ROOT / "assets/models/tiny-qwen2"
DIGITS = ("--kind", "causal", "--vocabulary", "digits", *SMALL)


@pytest.fixture(scope="module")
def built():
    return tokenizer.build("qwen2", "digits")


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A training run of two steps, initialized with the blocks of the bundled causal model."""
    folder = tmp_path_factory.mktemp("runs") / "digits"
    train("run", *DIGITS, "--steps", "2", "--init", str(QWEN), "--out", str(folder))
    return folder


def pieces(built, text):
    return [built.decode([i]) for i in built.encode(text, add_special_tokens=False).ids]


def test_each_digit_is_a_token_and_punctuation_joins_its_word(built):
    assert pieces(built, " 123 each.") == [" 1", "2", "3", " each."]
    assert built.get_vocab_size() == tokenizer.ROWS["digits"]
    named = {built.decode([i]) for i in tokenizer.digit_ids(built)}
    assert named == {*"0123456789", *(f" {n}" for n in range(1, 10))}


def test_neither_vocabulary_refines_the_other(built):
    first, text = tokenizer.build("qwen2"), corpus.draw(3, 1)[0].solution + " 123 each."

    def ends(one):
        return {b for _, b in one.encode(text, add_special_tokens=False).offsets}

    assert ends(first) - ends(built)
    assert ends(built) - ends(first)


@pytest.mark.parametrize(
    "text", ["Mia has 12 pens.", "emoji 🐢 and עברית", "${x} <b>\n\t`", "\x00é"]
)
def test_any_text_is_restored(built, text):
    assert built.decode(built.encode(text).ids) == text


def test_training_prompts_equal_those_of_the_chat_template(built, tmp_path):
    tokenizer.write(tmp_path, "qwen2", built)
    problem = corpus.draw(3, 1)[0]
    chat = [*corpus.chat(problem), {"role": "assistant", "content": problem.solution}]
    sample = BatchStream(built, Recipe(), "qwen2", 3)._encode([chat])[0]
    loaded = Tokenizer(tmp_path)
    assert loaded.encode_prompt(problem.question) == sample.ids[: sample.spans[0][0]]
    assert loaded.stop_ids == (tokenizer.EOT, tokenizer.EOS)
    assert sample.ids[sample.spans[0][1] - 1] == tokenizer.EOT


def test_blocks_and_common_tokens_are_taken_from_a_model_with_another_vocabulary(built, tmp_path):
    state = initial_state(tmp_path, QWEN, 1, "digits")
    shipped = export.read_weights(QWEN, NetworkShape())
    rows = Tokenizer(QWEN)
    (dot,), own = rows.encode("."), built.encode(".").ids[0]
    assert torch.equal(state["model"]["embed"][own], shipped["embed"][dot])
    for name, tensor in state["model"].items():
        if name in ("embed", "head"):
            assert tensor.shape[0] == tokenizer.ROWS["digits"]
        else:
            assert torch.equal(tensor, shipped[name])


def test_a_run_continues_with_its_own_vocabulary_only(run):
    with pytest.raises(SystemExit, match="give --vocabulary digits"):
        train("run", "--kind", "causal", "--steps", "1", "--out", str(run), *SMALL)


def test_an_export_has_the_vocabulary_and_the_weights_of_its_run(run, built, tmp_path):
    folder = tmp_path / "model"
    train("export", "--run", str(run), "--folder", str(folder), "--family", "qwen2")
    assert json.loads((folder / "tokenizer.json").read_text()) == json.loads(built.to_str())
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    weights = torch.load(run / "best.pt", weights_only=True)
    assert torch.equal(model.lm_head.weight, weights["head"].bfloat16().float())
    train("card", "--folder", str(folder))
    assert (folder / "README.md").read_text().startswith("# tiny-qwen2-digits\n")


def test_the_causal_model_is_evaluated_on_the_corpus():
    found = evaluate_causal(QWEN, corpus.exam_questions(6, 7, 0, "short_problems"), generate=True)
    assert found["correct"] >= 5
    assert found["accuracy"] == found["correct"] / 6
    assert found["equal"] == found["compared"] == 6
    assert found["speed_up"] > 0
