"""Dream-Coder and DiffuCoder: registered sizes and templates, and where DiffuCoder's texts end."""

import pytest

from engine.config.spec import RunSpec
from engine.core.events import RunFinished
from engine.guider.vocabularies import pair_vocabularies
from engine.models.loading.families import adapter_class
from engine.models.loading.registry import DIFFUCODER_TEMPLATE, REGISTERED
from engine.models.tokenizer import Tokenizer
from engine.serve.model_pool import ModelPool
from engine.serve.session import Session
from inspector.page_data.tokens import stop_ids
from tests.support.code_models import EOS, PAD, TURN_END, filled_ids, write_diffucoder
from tests.support.micro import TINY, write_checkpoint
from tests.support.traces import trace_of

SPEC = {"model": "coder", "prompt": "Hello", "gen_length": 16, "block_length": 16, "steps": 16,
        "unmasker": "dream"}  # fmt: skip
SYSTEM = "<|im_start|>system\nYou are a helpful assistant.<|im_end|>\n"
NAMES = [name for name in REGISTERED if "Coder" in name]


@pytest.fixture
def folder(tmp_path):
    return write_diffucoder(tmp_path / "coder")


@pytest.mark.parametrize("name", NAMES)
def test_code_models_have_dreams_sizes_and_context(name):
    info = adapter_class(REGISTERED[name].config).read_info(REGISTERED[name].config)
    assert (info.family, info.max_length, info.mask_id) == ("dream", 2048, 151666)
    assert REGISTERED[name].licence == ("apple-amlr" if "apple" in name else "Apache-2.0")


def test_only_instructed_models_of_diffucoder_have_a_template_of_their_own():
    own = {name for name in NAMES if REGISTERED[name].template}
    assert own == {"apple/DiffuCoder-7B-Instruct", "apple/DiffuCoder-7B-cpGRPO"}
    chat = {name: {p.fields["chat"] for p in REGISTERED[name].presets} for name in NAMES}
    assert chat == {name: {"Base" not in name} for name in NAMES}


def prompt_text(tokenizer, *prompt):
    return b"".join(map(tokenizer.piece, tokenizer.encode_prompt(*prompt))).decode()


def test_the_template_of_diffucoders_examples(folder):
    tokenizer = Tokenizer(folder, DIFFUCODER_TEMPLATE)
    turn = "<|im_start|>user\nHello\n<|im_end|>\n<|im_start|>assistant\n"
    assert prompt_text(tokenizer, " Hello\n") == SYSTEM + turn
    turns = (("system", "Be brief."), ("user", "One?"), ("assistant", "1"), ("user", "Two?"))
    assert prompt_text(tokenizer, "", turns) == (
        "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nOne?\n<|im_end|>\n"
        "<|im_start|>assistant\n1<|im_end|>\n<|im_start|>user\nTwo?\n<|im_end|>\n"
        "<|im_start|>assistant\n"
    )
    assert prompt_text(Tokenizer(folder), "Hello") != SYSTEM + turn


def test_a_registered_name_brings_its_template_and_a_folder_its_own(folder):
    names = ("apple/DiffuCoder-7B-Instruct", "Dream-org/Dream-Coder-v0-Instruct-7B", "coder")
    pool = ModelPool(dict.fromkeys(names, folder))
    texts = [prompt_text(pool.tokenizer(name), "Hello") for name in names]
    assert "Hello\n<|im_end|>" in texts[0]
    assert texts[1] == texts[2] == prompt_text(Tokenizer(folder), "Hello")
    assert "Hello<|im_end|>" in texts[1]


def finished(folder, *ends, **changes):
    """The end of a run whose answer has the fixed tokens `ends` from its fifth position on."""
    fixed = tuple((4 + i, end) for i, end in enumerate(ends))
    session = Session({"coder": folder})
    events = list(session.run(RunSpec(**SPEC, fixed=fixed, **changes)))
    assert isinstance(events[-1], RunFinished)
    return events, events[-1]


@pytest.mark.parametrize("end", [EOS, TURN_END, PAD])
def test_a_text_ends_at_the_first_of_three_tokens(folder, tmp_path, end):
    events, last = finished(folder, end, eos="fill_safe")
    assert last.metrics["tokens"] <= 4
    assert filled_ids(events) == {PAD}
    dream = write_checkpoint(tmp_path / "dream", kind="dream")
    events, other = finished(dream, end, eos="fill_safe")
    assert (other.metrics["tokens"] <= 4) == (end != PAD)
    assert filled_ids(events) <= {EOS}


def test_the_text_is_cut_and_the_tokens_are_counted_at_the_end_of_a_turn(folder):
    events, last = finished(folder, TURN_END, PAD, PAD, eos="fill_safe")
    assert "<|" not in last.texts[0]
    trace = trace_of(events)
    assert stop_ids(trace.meta["model"]) == sorted((EOS, TURN_END, PAD))
    assert trace.meta["model"]["fill_id"] == PAD


def test_a_guider_takes_the_padding_token_for_a_stop(folder):
    ours, theirs = Tokenizer(folder), Tokenizer(TINY.parent / "tiny-qwen2")
    pair = pair_vocabularies(ours, ours.stop_ids, 1024, theirs, theirs.stop_ids, 1024)
    assert pair.shared
    assert PAD not in pair.excluded_ids
    draft = pair.align((), (7, 8, PAD, PAD), (True,) * 4)
    assert draft.ids == (7, 8, theirs.stop_ids[0])
    end = pair_vocabularies(ours, (EOS, TURN_END), 1024, theirs, theirs.stop_ids, 1024)
    assert PAD in end.excluded_ids
