"""The shipped checkpoints, their tokenizers, the recorded example and the model cards."""

import json
from pathlib import Path

import pytest
import torch
from safetensors import safe_open
from transformers import AutoModelForCausalLM

from engine.families import embedded_models
from engine.models.weights import Checkpoint
from engine.session import Session
from engine.text import Tokenizer
from engine.tiny import tokenizer as tiny_tokenizer
from engine.trace import Trace

ASSETS = Path(__file__).parents[1] / "assets"
MODELS = ASSETS / "models"


@pytest.mark.parametrize(("name", "family"), [("tiny-llada", "llada"), ("tiny-qwen2", "qwen2")])
def test_the_shipped_tokenizer_is_the_one_that_the_code_builds(name, family):
    shipped = json.loads((MODELS / name / "tokenizer.json").read_text())
    assert shipped == json.loads(tiny_tokenizer.build(family).to_str())


@pytest.mark.parametrize(
    "text", ["Mia has 12 pens.", "emoji 🐢 and עברית", "${x} <b>\n\t`", "\x00é"]
)
def test_any_text_comes_back_from_its_ids(text):
    tokenizer = Tokenizer(MODELS / "tiny-llada")
    ids = tokenizer.encode(text)
    assert tokenizer.decode(ids) == text
    assert b"".join(map(tokenizer.piece, ids)).decode() == text


def test_numbers_to_199_are_single_tokens():
    tokenizer = Tokenizer(MODELS / "tiny-llada")
    assert all(len(tokenizer.encode(f" {n}")) == 1 for n in range(200))
    assert len(tokenizer.encode(" 1234")) > 1


def test_the_guider_loads_with_transformers_and_shares_the_vocabulary():
    guider = AutoModelForCausalLM.from_pretrained(MODELS / "tiny-qwen2", dtype=torch.float32)
    assert guider.config.model_type == "qwen2"
    a, b = (Tokenizer(MODELS / name) for name in ("tiny-llada", "tiny-qwen2"))
    text = "Mia has 12 pens and 30 books."
    assert a.encode(text) == b.encode(text)


def test_files_are_small_and_weights_are_bfloat16():
    for path in ASSETS.rglob("*"):
        assert not path.is_file() or path.stat().st_size < 8_000_000, path.name
    with safe_open(MODELS / "tiny-llada" / "model.safetensors", framework="pt") as file:
        assert {file.get_tensor(name).dtype for name in file.keys()} == {torch.bfloat16}  # noqa: SIM118


def test_the_recorded_example_is_the_default_race_of_the_shipped_model():
    race = Session(embedded_models(ASSETS)).default_race()
    digest = Checkpoint(MODELS / "tiny-llada").digest()
    for lane, spec in (("a", race.a), ("b", race.b)):
        trace = Trace.load(ASSETS / "examples" / f"{lane}.npz")
        assert trace.meta["environment"]["checkpoint"] == digest
        assert trace.meta["spec"] == json.loads(spec.to_json())
        assert trace.meta["reason"] == "done"


@pytest.mark.parametrize("name", ["tiny-llada", "tiny-qwen2"])
def test_a_model_card_states_corpus_training_and_exam(name):
    card = (MODELS / name / "README.md").read_text()
    for heading in ("## Exam", "## Corpus", "## Training"):
        assert heading in card
