"""Mask, stop and fill ids of a checkpoint: from its config or its tokenizer's files."""

import json

import pytest
import torch

from engine.config.spec import RunSpec
from engine.core.events import RunFinished, RunStarted
from engine.generate.end_of_text import text_length
from engine.models.loading.checkpoint import Checkpoint, CheckpointError
from engine.models.loading.families import folder_adapter_class, read_model_info
from engine.models.loading.special_tokens import MASK_TOKENS
from engine.models.tokenizer import Tokenizer
from engine.serve.session import Session
from tests.support.code_models import (
    EOS,
    PAD,
    TURN_END,
    add_token,
    change_tokenizer,
    write_diffucoder,
)
from tests.support.micro import configure, write_checkpoint

SPEC = {"model": "m", "prompt": "Hello", "chat": False, "gen_length": 8, "block_length": 8,
        "steps": 8}  # fmt: skip


def rename_mask(folder, name):
    for file in ("tokenizer.json", "tokenizer_config.json"):
        path = folder / file
        path.write_text(path.read_text().replace('"<|mdm_mask|>"', json.dumps(name)))


@pytest.mark.parametrize("name", MASK_TOKENS)
@pytest.mark.parametrize("file", ["tokenizer_config.json", "added_tokens.json", "tokenizer.json"])
def test_any_spelling_in_any_file_gives_the_mask_id(folder, name, file):
    configure(folder, mask_token_id=...)
    rename_mask(folder, name if file == "tokenizer.json" else "<|other|>")
    if file != "tokenizer_config.json":
        (folder / "tokenizer_config.json").write_text("{}")
    if file == "added_tokens.json":
        (folder / file).write_text(json.dumps({name: 2}))
    if file == "tokenizer_config.json":
        change_tokenizer(
            folder, lambda config: config["added_tokens_decoder"]["2"].update(content=name)
        )
    assert read_model_info(folder).mask_id == 2


def test_the_config_decides_where_it_names_a_mask(folder):
    add_token(folder, "<|mask|>", 816)
    assert read_model_info(folder).mask_id == 2
    configure(folder, mask_token_id=816)
    assert read_model_info(folder).mask_id == 816


def test_two_spellings_of_one_id_are_one_mask(folder):
    configure(folder, mask_token_id=...)
    rename_mask(folder, "<|MASK|>")
    (folder / "added_tokens.json").write_text(json.dumps({"<MASK>": 2}))
    assert read_model_info(folder).mask_id == 2


def test_two_masks_are_an_error_that_names_both(folder):
    configure(folder, mask_token_id=...)
    add_token(folder, "<|mask|>", 816)
    message = r"tokenizer_config\.json: two mask tokens, <\|mdm_mask\|> with id 2 and <\|mask\|> "
    with pytest.raises(CheckpointError, match=message + r"with id 816; set mask_token_id"):
        read_model_info(folder)
    change_tokenizer(folder, lambda config: config["added_tokens_decoder"].pop("816"))
    (folder / "added_tokens.json").write_text(json.dumps({"<MASK>": 7}))
    with pytest.raises(CheckpointError, match=r"added_tokens\.json: two .* in tokenizer_config\."):
        read_model_info(folder)


def test_no_mask_is_an_error_that_names_file_and_remedy(folder):
    configure(folder, mask_token_id=...)
    rename_mask(folder, "<|other|>")
    message = r"tokenizer_config\.json: no mask token \(<\|mdm_mask\|>.*set mask_token_id in config"
    with pytest.raises(CheckpointError, match=message):
        read_model_info(folder)


@pytest.mark.parametrize(
    "text",
    ["{}", '{"added_tokens_decoder": []}', '{"added_tokens_decoder": {"x": 1, "2": 3}}',
     '{"added_tokens_decoder": {"%s": {"content": "<|mask|>"}}}' % ("9" * 5000)],
    ids=["none", "list", "odd", "long"],
)  # fmt: skip
def test_odd_tokenizer_files_name_no_mask(folder, text):
    configure(folder, mask_token_id=...)
    (folder / "tokenizer_config.json").write_text(text)
    (folder / "added_tokens.json").write_text('{"<MASK>": "2", "<|mask|>": true}')
    (folder / "tokenizer.json").write_text('{"added_tokens": [3, {"content": "<|mask|>"}]}')
    with pytest.raises(CheckpointError, match="no mask token"):
        read_model_info(folder)


def test_an_end_of_text_that_the_config_lacks_is_the_tokenizers(folder):
    configure(folder, eos_token_id=...)
    assert read_model_info(folder).eos_id == EOS
    change_tokenizer(folder, lambda config: config.update(eos_token={"content": "<|eot_id|>"}))
    assert read_model_info(folder).eos_id == TURN_END
    change_tokenizer(folder, lambda config: config.update(eos_token=None))
    with pytest.raises(CheckpointError, match=r"tokenizer_config\.json: .*set eos_token_id in"):
        read_model_info(folder)


def load(folder):
    tokenizer = Tokenizer(folder)
    return folder_adapter_class(folder).from_checkpoint(
        Checkpoint(folder), torch.float32, torch.device("cpu"), tokenizer.stop_ids,
        tokenizer.fill_id,
    )  # fmt: skip


def test_padding_of_its_own_ends_and_fills_a_text(tmp_path, folder):
    coder = load(write_diffucoder(tmp_path / "coder")).info
    assert coder.stop_ids == (EOS, TURN_END, PAD)
    assert (coder.eos_id, coder.pad_id, coder.fill_id) == (EOS, EOS, PAD)
    llada = load(folder).info
    assert llada.stop_ids == (EOS, TURN_END)
    assert llada.fill_id == llada.eos_id == EOS


@pytest.mark.parametrize("pad", ["<|mask|>", "<|beginoftext|>", None])
def test_a_pad_token_with_another_use_ends_no_text(tmp_path, pad):
    folder = write_diffucoder(tmp_path / "coder")
    change_tokenizer(
        folder, lambda config: config.update(pad_token=pad, bos_token="<|beginoftext|>")
    )
    info = load(folder).info
    assert (info.stop_ids, info.fill_id) == ((EOS, TURN_END), EOS)


def ended_run(folder, end):
    """Events of a run whose answer is ended by the fixed token `end` at its third place."""
    spec = RunSpec(**SPEC, unmasker="dream", fixed=((2, end),), eos="fill_eager")
    return list(Session({"m": folder}).run(spec))


def behind_the_end(events):
    """The ids behind the given end of the answer, which are known before the first step."""
    started = next(event for event in events if isinstance(event, RunStarted))
    return set(started.canvas[0, -5:].tolist())


@pytest.mark.parametrize("end", [EOS, TURN_END, PAD])
def test_a_run_fills_after_each_end_with_the_padding_token(tmp_path, end):
    events = ended_run(write_diffucoder(tmp_path / "coder"), end)
    started = next(e for e in events if isinstance(e, RunStarted))
    finished = next(e for e in events if isinstance(e, RunFinished))
    assert text_length(finished.canvas[0, -8:], tuple(started.model["stop_ids"])) <= 2
    assert started.model["fill_id"] == PAD
    assert behind_the_end(events) == {PAD}


def test_the_end_of_text_of_the_config_would_fill_with_another_token(tmp_path):
    folder = write_diffucoder(tmp_path / "coder")
    change_tokenizer(folder, lambda config: config.update(pad_token="<|endoftext|>"))
    assert behind_the_end(ended_run(folder, TURN_END)) == {EOS}


def test_suppressing_the_end_suppresses_both_ends_that_fill(tmp_path):
    folder = write_diffucoder(tmp_path / "coder")
    model = Session({"m": folder})._models.load(RunSpec(**SPEC))
    with torch.no_grad():  # the likeliest tokens by far
        bias = model.adapter.head.weight
        bias.copy_(torch.randn(bias.shape, generator=torch.Generator().manual_seed(0)))

    def answer(**changes):
        session = Session({"m": folder})
        session._models._loaded[("m", "float32", "cpu")] = model
        return set(list(session.run(RunSpec(**SPEC, **changes)))[-1].canvas[0, -8:].tolist())

    plain = answer()
    row = max(plain)
    with torch.no_grad():
        model.adapter.head.weight[PAD] = model.adapter.head.weight[row] * 1.5
        model.adapter.head.weight[EOS] = model.adapter.head.weight[row] * 1.4
    assert PAD in answer()
    assert not {PAD, EOS} & answer(eos_suppress="logits")


def message_of(folder):
    """Why a plan of a checkpoint is refused; the run is refused for the same reason."""
    texts = []
    for use in (Session.plan, lambda *given: list(Session.run(*given))):
        with pytest.raises(CheckpointError) as caught:
            use(Session({"m": folder}), RunSpec(**SPEC))
        texts.append(str(caught.value))
    assert texts[0] == texts[1]
    return texts[0]


def test_a_mask_that_the_tokenizer_lacks_is_an_error(folder):
    configure(folder, mask_token_id=1000)
    assert message_of(folder) == (
        "config.json: mask_token_id is 1000, which is no token in the tokenizer; copy config.json "
        "and the tokenizer from one checkpoint"
    )
    configure(folder, mask_token_id=300)
    assert "mask_token_id is 300, which is '" in message_of(folder)
    assert "a token of text" in message_of(folder)


def test_a_tokenizer_with_more_ids_than_the_model_is_an_error(tmp_path):
    small = write_checkpoint(tmp_path / "small", vocab_size=700, embedding_size=700)
    assert message_of(small).startswith(
        "config.json: vocab_size is 700, but the tokenizer has ids up to 815; copy config.json"
    )


@pytest.mark.parametrize("field", ["pad_token", "eos_token"])
@pytest.mark.parametrize("name", ["<|missing|>", "\u0120has"])
def test_an_end_that_is_no_added_token_is_an_error(tmp_path, field, name):
    """The library would add a missing token behind the vocabulary, where the model has no text."""
    folder = write_diffucoder(tmp_path / "coder")
    change_tokenizer(folder, lambda config: config.update({field: name}))
    assert message_of(folder).startswith(f"tokenizer_config.json: {field} is {name!r}, which is no")
