"""The shipped checkpoints, their tokenizers, the recorded example and the model cards."""

import json

import pytest
import torch
from safetensors import safe_open
from transformers import AutoModelForCausalLM

from engine.catalog import unmaskers
from engine.config.spec import RunSpec
from engine.core.files import ASSETS
from engine.models.loading.checkpoint import Checkpoint
from engine.models.loading.families import embedded_models
from engine.models.tokenizer import Tokenizer
from engine.tiny import corpus
from engine.tiny import tokenizer as tiny_tokenizer
from engine.tiny.export import read_history, trained_families
from engine.tiny.family import count_pieces
from engine.trace.trace import Trace
from tests.support.micro import full_policies

MODELS = ASSETS / "models"
LEFT = (
    "There are 28 apples in the bag of Nora. She sells 5. She buys 2 more. "
    "How many apples does Nora have now?"
)


FAMILIES = {
    "tiny-llada": "llada", "tiny-dream": "dream", "tiny-qwen2": "qwen2",
    "tiny-qwen2-digits": "qwen2", "tiny-block": "fast_dllm_v2",
}  # fmt: skip
GUIDERS = ("tiny-qwen2", "tiny-qwen2-digits")


def test_only_the_known_models_are_shipped():
    assert {folder.name for folder in MODELS.iterdir()} == set(FAMILIES)
    assert list(embedded_models(ASSETS)) == ["tiny-llada", "tiny-block", "tiny-dream"]


@pytest.mark.parametrize("name", [name for name in FAMILIES if name != "tiny-qwen2-digits"])
def test_every_word_of_the_problems_that_a_model_knows_is_one_token(name):
    tokenizer = Tokenizer(MODELS / name)
    for family in trained_families(read_history(MODELS / name)):
        for one in corpus.draw(5, 40, family=family):
            for text in (one.question, one.solution):
                assert len(tokenizer.encode(text)) == count_pieces(text) + text.count("\n")


@pytest.mark.parametrize("name", FAMILIES)
def test_the_special_tokens_have_the_ids_of_their_roles(name):
    names = tiny_tokenizer.SPECIALS[FAMILIES[name]]
    found = json.loads((MODELS / name / "tokenizer.json").read_text())["model"]["vocab"]
    assert [found[special] for special in names] == list(range(len(names)))


@pytest.mark.parametrize(
    "text", ["Mia has 12 pens.", "emoji 🐢 and עברית", "${x} <b>\n\t`", "\x00é"]
)
def test_any_text_is_decoded_unchanged(text):
    tokenizer = Tokenizer(MODELS / "tiny-llada")
    ids = tokenizer.encode(text)
    assert tokenizer.decode(ids) == text
    assert b"".join(map(tokenizer.piece, ids)).decode() == text


def test_numbers_to_199_are_single_tokens():
    tokenizer = Tokenizer(MODELS / "tiny-llada")
    assert all(len(tokenizer.encode(f" {n}")) == 1 for n in range(200))
    assert len(tokenizer.encode(" 1234")) > 1


@pytest.mark.parametrize("name", GUIDERS)
def test_a_guider_loads_with_transformers(name):
    guider = AutoModelForCausalLM.from_pretrained(MODELS / name, dtype=torch.float32)
    assert guider.config.model_type == "qwen2"


def test_only_one_guider_shares_the_vocabulary():
    text = "Mia has 12 pens and 30 books."
    ids = {name: Tokenizer(MODELS / name).encode(text) for name in FAMILIES}
    assert ids["tiny-llada"] == ids["tiny-dream"] == ids["tiny-qwen2"]
    assert ids["tiny-llada"] != ids["tiny-qwen2-digits"]


METHODS = [("cache", name) for name in full_policies()]
METHODS += [("unmasker", name) for name in unmaskers()]


@pytest.mark.parametrize(("kind", "name"), METHODS)
def test_every_method_decodes_an_answer(shipped, kind, name):
    model = "tiny-dream" if kind == "unmasker" else "tiny-llada"
    size = {"gen_length": 48, "block_length": 24, "steps": 24}
    knobs = {"dare_o.skip_first_layers": 2} if name == "dare_o" else {}  # 0 garbles some answers
    spec = RunSpec(model=model, prompt=LEFT, knobs=knobs, **size, **{kind: name})
    assert "answer is 25" in list(shipped.run(spec))[-1].texts[0]


def test_files_are_small_and_weights_are_bfloat16():
    for path in ASSETS.rglob("*"):
        assert not path.is_file() or path.stat().st_size < 8_000_000, path.name
    for name in FAMILIES:
        with safe_open(MODELS / name / "model.safetensors", framework="pt") as file:
            assert {file.get_tensor(key).dtype for key in file.keys()} == {torch.bfloat16}  # noqa: SIM118


def test_the_recorded_example_is_the_default_race_of_the_shipped_model(shipped):
    race = shipped.default_race()
    digest = Checkpoint(MODELS / "tiny-llada").digest()
    for lane, spec in (("a", race.a), ("b", race.b)):
        trace = Trace.load(ASSETS / "examples" / f"{lane}.npz")
        assert trace.meta["environment"]["checkpoint"] == digest
        assert RunSpec.from_dict(trace.meta["spec"]) == spec
        assert trace.meta["reason"] == "done"


@pytest.mark.parametrize("name", FAMILIES)
def test_a_model_card_has_corpus_training_and_exam(name):
    card = (MODELS / name / "README.md").read_text()
    for heading in ("## Exam", "## Corpus", "## Training"):
        assert heading in card
