"""Tokenizer: ids, text and raw bytes agree for any text; prompts and chat templates."""

import json
import shutil

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.models.loading.checkpoint import CheckpointError
from engine.models.loading.families import read_model_info
from engine.models.tokenizer import Tokenizer
from tests.support.micro import ROOT, write_checkpoint

TEXTS = [
    "Ann has 3 apples.", "", " ", "\n\n", "naïve café", "汉字かな", "👩‍👩‍👧‍👦 🇺🇳", "مرحبا بالعالم",
    "שלום 12 עולם", "e\u0301 \u202eabc\u202c", "\x00\x7f", "0 10 100 199 200 1234567890",
]  # fmt: skip


@pytest.fixture(scope="module")
def tokenizer():
    return Tokenizer(ROOT / "assets" / "models" / "tiny-llada")


@pytest.mark.parametrize("text", TEXTS)
def test_texts_survive_a_round_trip(tokenizer, text):
    ids = tokenizer.encode(text)
    assert tokenizer.decode(ids) == text
    assert b"".join(tokenizer.piece(i) for i in ids) == text.encode()


@given(text=st.text(st.characters(exclude_categories=["Cs"]), max_size=40))
def test_any_text_survives_a_round_trip(tokenizer, text):
    if "<|" not in text:
        assert tokenizer.decode(tokenizer.encode(text)) == text


def test_half_a_character_decodes_to_a_replacement_character(tokenizer):
    ids = tokenizer.encode("👩")
    assert len(ids) > 1
    assert tokenizer.decode(ids[:1]) == "\ufffd"
    assert b"".join(tokenizer.pieces(ids)[i] for i in ids) == "👩".encode()


def test_special_tokens_have_names_but_no_text(tokenizer):
    (mask,) = tokenizer.encode("<|mdm_mask|>")
    assert tokenizer.piece(mask) == b"<|mdm_mask|>"
    assert tokenizer.decode([mask]) == ""
    assert tokenizer.piece(10**7) == b"<10000000>"


def test_stop_ids_end_a_text_or_a_turn(tokenizer):
    assert [tokenizer.piece(i) for i in tokenizer.stop_ids] == [b"<|endoftext|>", b"<|eot_id|>"]


def test_the_chat_template_wraps_the_turns(tokenizer):
    text = b"".join(tokenizer.piece(i) for i in tokenizer.encode_prompt("Hello"))
    assert text.startswith(b"<|startoftext|><|start_header_id|>user<|end_header_id|>\n\nHello")
    assert text.endswith(b"<|eot_id|><|start_header_id|>assistant<|end_header_id|>\n\n")
    assert text.count(b"<|startoftext|>") == 1


def test_messages_are_turns(tokenizer):
    turns = (("system", "Be brief."), ("user", "One?"), ("assistant", "1"), ("user", "Two?"))
    text = b"".join(tokenizer.piece(i) for i in tokenizer.encode_prompt("", turns))
    assert [text.count(role) for role in (b"system", b"user", b"assistant")] == [1, 2, 2]
    assert text.index(b"Be brief.") < text.index(b"One?") < text.index(b"Two?")


def test_without_the_template_a_prompt_is_encoded_unchanged(tokenizer):
    assert tokenizer.encode_prompt("Hello", chat=False) == tokenizer.encode("Hello")


def test_a_missing_template_is_an_error(tmp_path):
    folder = write_checkpoint(tmp_path / "bare")
    path = folder / "tokenizer_config.json"
    config = json.loads(path.read_text())
    config.pop("chat_template", None)
    path.write_text(json.dumps(config))
    for file in folder.glob("*.jinja"):
        file.unlink()
    with pytest.raises(ValueError, match="chat: this model has no chat template"):
        Tokenizer(folder).encode_prompt("Hello")


def copied(tmp_path, **changed):
    """A copy of the tokenizer of `tiny-llada`, with changed fields in its config."""
    folder = tmp_path / "copy"
    shutil.copytree(ROOT / "assets" / "models" / "tiny-llada", folder)
    path = folder / "tokenizer_config.json"
    path.write_text(json.dumps(json.loads(path.read_text("utf-8")) | changed), "utf-8")
    return folder


@pytest.mark.parametrize("length", [[1024], "1024", {"tokens": 1024}])
def test_a_longest_text_that_is_no_number_is_named(tmp_path, length):
    with pytest.raises(CheckpointError, match=r"config.json: model_max_length is .*no number"):
        Tokenizer(copied(tmp_path, model_max_length=length))


def test_a_padding_token_without_a_name_fills_nothing_and_is_refused(tmp_path):
    folder = copied(tmp_path, pad_token="")
    found = Tokenizer(folder)
    assert (found.fill_id, found.piece(found.stop_ids[0])) == (None, b"<|endoftext|>")
    with pytest.raises(CheckpointError, match=r"pad_token is '', which is no added token"):
        found.check(read_model_info(folder))


def test_a_tokenizer_without_a_token_is_named(tmp_path):
    folder = copied(tmp_path)
    info, path = read_model_info(folder), folder / "tokenizer.json"
    found = json.loads(path.read_text("utf-8")) | {"added_tokens": []}
    found["model"] |= {"vocab": {}, "merges": []}
    path.write_text(json.dumps(found), "utf-8")
    (folder / "tokenizer_config.json").write_text("{}", "utf-8")
    with pytest.raises(CheckpointError, match=r"^config.json: mask_token_id is .* no token in the"):
        Tokenizer(folder).check(info)
